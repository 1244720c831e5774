//! Causes of a change that the read itself shows.

use lattice_conformance::{ClassRecord, Reading, history::Cause};
use std::collections::BTreeSet;

/// Prefix of the kernel class's keys for modules: `kernel.module.<name>.<what>`.
const MODULE: &str = "kernel.module.";
/// Keys that change with the version of a module.
const VERSIONS: [&str; 2] = ["version", "srcversion"];

/// Finds a module that was loaded, unloaded or replaced since the kernel's record was last published. The kernel
/// reports such events as they happen, but not into every container, and not while the agent is down. Every read
/// contains the versions anyway, so this check costs nothing.
pub(super) fn driver_cause(
    before: Option<&ClassRecord>,
    now: Option<&ClassRecord>,
) -> Option<Cause> {
    let (before, now) = (before?, now?);
    if before.schema != now.schema || now.disabled.is_some() {
        return None;
    }
    let keys: BTreeSet<&String> = before.entries.keys().chain(now.entries.keys()).collect();
    keys.into_iter().find_map(|key| {
        let (module, what) = key.strip_prefix(MODULE)?.rsplit_once('.')?;
        // A module parameter may have the same name; the module name itself contains no dot.
        if module.contains('.') || !VERSIONS.contains(&what) {
            return None;
        }
        let of = |record: &ClassRecord| match record.entries.get(key) {
            None => Reading::Absent,
            Some(reading) => reading.clone(),
        };
        let (from, to) = (of(before), of(now));
        let is_other = from.is_known() && to.is_known() && from != to;
        let module = module.to_owned();
        is_other.then_some(Cause::DriverLoad { module })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::Class;

    fn kernel(keys: &[(&str, Reading<&str>)]) -> ClassRecord {
        let mut record = ClassRecord::new(Class::Kernel);
        for (key, reading) in keys {
            record.put(*key, reading.clone());
        }
        record
    }

    #[test]
    fn a_module_of_another_version_is_named_and_a_parameter_is_not() {
        let version = "kernel.module.nvidia.version";
        let old = kernel(&[(version, Reading::Present("570.1"))]);
        let new = kernel(&[(version, Reading::Present("580.2"))]);
        let module = "nvidia".to_owned();
        let loaded = Some(Cause::DriverLoad { module });
        assert_eq!(driver_cause(Some(&old), Some(&new)), loaded);
        assert_eq!(driver_cause(Some(&kernel(&[])), Some(&new)), loaded);
        assert_eq!(driver_cause(Some(&new), Some(&kernel(&[]))), loaded);
        assert_eq!(driver_cause(Some(&old), Some(&old)), None);
        assert_eq!(driver_cause(None, Some(&new)), None);
        let unread = kernel(&[(version, Reading::failed("input/output error"))]);
        assert_eq!(driver_cause(Some(&old), Some(&unread)), None);
        let parameter = |value| {
            kernel(&[(
                "kernel.module.nvidia.parameter.version",
                Reading::Present(value),
            )])
        };
        assert_eq!(
            driver_cause(Some(&parameter("1")), Some(&parameter("2"))),
            None
        );
    }
}
