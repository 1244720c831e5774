//! Results of `--check` for several schedules.

use super::print_message;
use crate::{failure::Failure, output};
use lattice_replay::check::Faults;
use std::process::ExitCode;

/// Faults of the schedules of one command.
#[derive(Debug, Default)]
pub struct CheckedSchedules {
    /// Number of checked schedules.
    checked: usize,
    /// Number of all faults.
    found: u64,
    /// Described faults, each with the name of its schedule.
    descriptions: Vec<String>,
}

impl CheckedSchedules {
    /// Adds the schedule that `name` returns; `faults` is `None` if it was not checked.
    pub fn add(&mut self, name: impl Fn() -> String, faults: Option<&Faults>) {
        let Some(faults) = faults else {
            return;
        };
        self.checked += 1;
        self.found += faults.count;
        let described = faults.descriptions.iter();
        self.descriptions
            .extend(described.map(|fault| format!("{}: {fault}", name())));
    }

    /// Prints the faults and their number, unless no schedule was checked.
    ///
    /// # Errors
    /// A schedule has a fault.
    pub fn report(&self) -> Result<ExitCode, Failure> {
        for description in &self.descriptions {
            print_message(format!("check: {description}"));
        }
        if self.checked > 0 {
            print_message(format!(
                "checked {}: {}",
                output::counted(self.checked, "schedule"),
                output::counted(self.found, "fault")
            ));
        }
        match self.found {
            0 => Ok(ExitCode::SUCCESS),
            _ => Err(Failure::refused("schedules violate checks; see above")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_any_schedule_fail_the_command() {
        let mut all = CheckedSchedules::default();
        all.add(|| unreachable!("not checked"), None);
        assert!(all.report().is_ok());
        assert_eq!(all.checked, 0);
        all.add(|| "easy, seed 0".to_owned(), Some(&Faults::default()));
        assert!(all.report().is_ok());
        let mut faults = Faults::default();
        faults.descriptions.push("job 7 starts early".to_owned());
        faults.count += 9;
        all.add(|| "easy, seed 1".to_owned(), Some(&faults));
        assert_eq!((all.checked, all.found), (2, 9));
        assert_eq!(all.descriptions, ["easy, seed 1: job 7 starts early"]);
        let failure = all.report().err();
        assert_eq!(failure.map(|failure| failure.code), Some(1));
    }
}
