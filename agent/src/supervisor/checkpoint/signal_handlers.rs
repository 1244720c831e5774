//! Signal disposition of a process, read from `/proc`.

use rustix::process::{Pid, Signal};

/// Effect of a signal that is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalEffect {
    /// The program has a handler for the signal.
    Caught,
    /// The program ignores the signal.
    Ignored,
    /// The default action applies: for most signals, the end of the program.
    Default,
}

/// Disposition of `pid` according to the kernel; `None` if it is not available.
pub(super) fn disposition(pid: Pid, signal: Signal) -> Option<SignalEffect> {
    let pid = pid.as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse(&status, signal)
}

fn parse(status: &str, signal: Signal) -> Option<SignalEffect> {
    let bit = 1_u64.checked_shl(signal.as_raw().unsigned_abs().checked_sub(1)?)?;
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let (caught, ignored) = (mask("SigCgt:")?, mask("SigIgn:")?);
    Some(match (caught & bit != 0, ignored & bit != 0) {
        (true, _) => SignalEffect::Caught,
        (false, true) => SignalEffect::Ignored,
        (false, false) => SignalEffect::Default,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_masks_are_read() {
        let status = "Name:\tsh\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000200\n";
        assert_eq!(parse(status, Signal::USR1), Some(SignalEffect::Caught));
        assert_eq!(parse(status, Signal::PIPE), Some(SignalEffect::Ignored));
        assert_eq!(parse(status, Signal::TERM), Some(SignalEffect::Default));
        assert_eq!(parse("Name:\tsh\n", Signal::USR1), None);
    }
}
