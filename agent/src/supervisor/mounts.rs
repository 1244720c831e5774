//! The mount table of this process.

/// Maximum number of reads of the table before a row counts as missing. Kernels before 5.8 return the table in pieces,
/// and leave out a row when another filesystem is unmounted between two pieces.
const MAX_READS: usize = 3;

/// Returns the value that `parse` finds in the mount table.
pub(super) fn find_in_mount_table<T>(parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    (0..MAX_READS).find_map(|_| {
        let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        parse(&table)
    })
}
