//! Stopwatch for the steps after an action, printed as a table or as JSON.

use serde_json::json;
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Times the steps that follow an action.
#[derive(Debug)]
pub struct Stopwatch {
    from: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Stopwatch {
    /// Starts with an action.
    pub fn begin() -> Self {
        Self {
            from: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// Restarts with another action: later steps count from now.
    pub fn again(&mut self) {
        self.from = Instant::now();
    }

    /// Records a step.
    pub fn step(&mut self, name: &'static str) {
        self.steps.push((name, self.from.elapsed()));
    }

    /// Prints a table, or with `LATTICE_OUTPUT=json` one object: milliseconds since the action.
    #[expect(clippy::print_stdout, reason = "what the test shows")]
    pub fn print(&self) {
        if std::env::var("LATTICE_OUTPUT").is_ok_and(|format| format == "json") {
            let steps = self.steps.iter();
            let steps: serde_json::Map<_, _> = steps
                .map(|(name, after)| ((*name).to_owned(), json!(after.as_millis())))
                .collect();
            println!("{}", json!({ "after_ms": steps }));
        } else {
            println!("{self}");
        }
    }
}

impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<72} {:>9}", "step", "after ms")?;
        for (name, after) in &self.steps {
            write!(f, "\n{name:<72} {:>9}", after.as_millis())?;
        }
        Ok(())
    }
}
