//! Tests of a program with its own `main`, run by libtest-mimic.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// Path of a test without its crate, and its function.
pub type Test = (&'static str, fn());

/// The named functions of the module, as tests.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        &[$((concat!(module_path!(), "::", stringify!($test)), $test as fn()),)+]
    };
}
pub(crate) use tests;

/// Runs these tests according to the arguments, one at a time if `is_serial`.
pub fn run(tests: impl IntoIterator<Item = &'static Test>, is_serial: bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if is_serial {
        arguments.test_threads = Some(1);
    }
    let trials = tests.into_iter().map(|&(path, test)| {
        let name = path.split_once("::").map_or(path, |(_crate, name)| name);
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
