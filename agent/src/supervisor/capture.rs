//! Output capture: copies one output of the job into files, up to a cap.
//!
//! The job writes into a pipe and never opens the files. So no path of the user is opened with the supervisor's rights.
//! A job that prints without end costs processor time but no disk space: beyond the cap, the first and the last part of
//! the output are kept: the last part contains the reason of a failure. It consists of segments, of which the oldest are
//! removed when new bytes exceed its size (see [`CapturedOutput`]).

use super::supervisor_log::log_line;
use crate::attempt::{CapturedOutput, open_output};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes per read: the default capacity of a pipe.
const CHUNK: usize = 64 << 10;

/// Maximum number of reads after the end of the job, together twice the largest pipe (1 MiB): a foreign process may
/// keep writing.
const MAX_FINAL_READS: usize = 32;

/// Number of full segments of the last part. The oldest segment is removed when new bytes exceed the size of the last
/// part, so 7 to 8 eighths of it are kept.
const SEGMENTS: u64 = 8;

/// Maximum number of segments. Each failed write ends a segment early, so there may be more than [`SEGMENTS`].
const MAX_SEGMENTS: usize = 64;

/// Running copy of one output.
pub(super) struct Capture {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Capture {
    /// Reads the rest of the pipe and ends. To be called after every process of the job has ended: a foreign process
    /// may hold the pipe open for ever.
    pub(super) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// Starts to copy `pipe` into `output`, of which `file` is the head.
pub(super) fn spawn(
    pipe: OwnedFd,
    output: CapturedOutput,
    file: File,
    cap: u64,
) -> io::Result<Capture> {
    let pipe = Receiver::from_owned_fd(pipe)?;
    let (all_writers_gone, gone) = oneshot::channel();
    let kept = CaptureFile::new(output, file, cap)?;
    Ok(Capture {
        task: tokio::spawn(copy(pipe, kept, gone)),
        stop: all_writers_gone,
    })
}

async fn copy(pipe: Receiver, mut kept: CaptureFile, mut gone: oneshot::Receiver<()>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        tokio::select! {
            ready = pipe.readable() => if ready.is_err() {
                return;
            },
            _ = &mut gone => return drain(&pipe, &mut kept, &mut chunk),
        }
        loop {
            match pipe.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => kept.append(chunk.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
            // Yields so that the walltime is checked between chunks.
            tokio::task::yield_now().await;
        }
    }
}

/// Reads the rest of the pipe with direct system calls: the runtime may not have received the readiness event yet.
fn drain(pipe: &Receiver, kept: &mut CaptureFile, chunk: &mut [u8]) {
    for _ in 0..MAX_FINAL_READS {
        match rustix::io::read(pipe, &mut *chunk) {
            Ok(0) => return,
            Ok(n) => kept.append(chunk.get(..n).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// File of a later part of the output.
struct Segment {
    /// Position of its first byte in the stream.
    start: u64,
    /// Length of the file.
    bytes: u64,
}

/// Writer of a captured output: the head is half of the cap, the segments together the other half.
struct CaptureFile {
    output: CapturedOutput,
    /// The head, or the newest segment.
    file: File,
    /// Bytes that `file` may still take.
    remaining_bytes: u64,
    /// Position in the stream: bytes that were written or lost.
    position: u64,
    segment_bytes: u64,
    /// The segments, by ascending position.
    segments: VecDeque<Segment>,
    /// Whether a failed write was logged.
    is_failure_logged: bool,
}

impl CaptureFile {
    /// Continues the head `file`, which may hold messages of the supervisor.
    fn new(output: CapturedOutput, file: File, cap: u64) -> io::Result<Self> {
        // A segment of no bytes could not take any output.
        let segment_bytes = (cap / 2 / SEGMENTS).max(1);
        let head_bytes = cap.saturating_sub(segment_bytes * SEGMENTS);
        let position = file.metadata()?.len();
        Ok(Self {
            output,
            file,
            remaining_bytes: head_bytes.saturating_sub(position),
            position,
            segment_bytes,
            segments: VecDeque::new(),
            is_failure_logged: false,
        })
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.remaining_bytes == 0 {
                bytes = self.skip_surplus(bytes);
            }
            let count = match self.write_part(bytes) {
                Ok(count) => count,
                Err(error) => return self.lose(bytes.len(), &error),
            };
            bytes = bytes.get(count..).unwrap_or_default();
        }
    }

    /// Leaves out bytes that this call would write into a segment and remove again.
    fn skip_surplus<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let kept = usize::try_from(self.segment_bytes * SEGMENTS).unwrap_or(usize::MAX);
        let surplus = bytes.len().saturating_sub(kept);
        self.position += surplus as u64;
        bytes.get(surplus..).unwrap_or_default()
    }

    /// Writes as many bytes as fit into one file, and returns their number.
    fn write_part(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.remaining_bytes == 0 {
            self.file = open_output(&self.output.segment(self.position))?;
            self.segments.push_back(Segment {
                start: self.position,
                bytes: 0,
            });
            self.remaining_bytes = self.segment_bytes;
        }
        let room = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX);
        let part = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.file.write_all(part)?;
        self.position += part.len() as u64;
        self.remaining_bytes -= part.len() as u64;
        if let Some(newest) = self.segments.back_mut() {
            newest.bytes += part.len() as u64;
        }
        // Only now: while nothing can be written, the earlier segments are the end of the output.
        self.remove_oldest();
        Ok(part.len())
    }

    /// Removes the oldest segments until the last part has at most its size. Their number alone does not decide: on a
    /// disk that is almost full, many segments have a few bytes each.
    fn remove_oldest(&mut self) {
        let mut kept: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        while (kept > self.segment_bytes * SEGMENTS || self.segments.len() > MAX_SEGMENTS)
            && let Some(oldest) = self.segments.pop_front()
        {
            kept -= oldest.bytes;
            let _ = std::fs::remove_file(self.output.segment(oldest.start));
        }
    }

    /// Counts bytes as left out. The next bytes begin a new segment: a disk that was full may have space again.
    fn lose(&mut self, count: usize, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            log_line(format_args!(
                "output cannot be written; it is lost until it can: {error}"
            ));
        }
        if let Some(newest) = self.segments.back_mut() {
            let path = self.output.segment(newest.start);
            if newest.start == self.position {
                // Nothing was recorded as written into this segment.
                let _ = std::fs::remove_file(path);
                self.segments.pop_back();
            } else if let Ok(file) = std::fs::metadata(path) {
                // The failed write may have written some of its bytes.
                newest.bytes = file.len();
            }
        }
        self.remaining_bytes = 0;
        self.position += count as u64;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::attempt::OutputReader;
    use lattice_agent_rpc::{covered_bytes, left_out_line};
    use std::path::Path;

    /// Random numbers by xorshift: the same on every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }
    }

    fn capture(folder: &Path, cap: u64) -> CaptureFile {
        let output = CapturedOutput::at(folder.join("stdout"));
        let file = open_output(output.head()).unwrap();
        CaptureFile::new(output, file, cap).unwrap()
    }

    /// Reads what is present, and checks it against the stream: every piece is the part of the stream at its position,
    /// or a line with the number of bytes up to the next piece.
    fn read_on(reader: &mut OutputReader, position: &mut u64, stream: &[u8]) -> (u64, u64) {
        let (mut kept, mut left_out) = (0, 0);
        while let Some(piece) = reader.next_piece().unwrap() {
            let covered = covered_bytes(&piece);
            let part = &stream[*position as usize..(*position + covered) as usize];
            if piece == part {
                kept += covered;
            } else {
                assert_eq!(piece, left_out_line(covered));
                left_out += covered;
            }
            *position += covered;
        }
        (kept, left_out)
    }

    #[test]
    fn output_up_to_the_cap_is_kept_entirely() {
        for (cap, length) in [(160, 0), (160, 80), (160, 81), (160, 160), (165, 165)] {
            let folder = tempfile::tempdir().unwrap();
            let mut file = capture(folder.path(), cap);
            let stream: Vec<u8> = (0..length).map(|n| b'a' + (n % 26) as u8).collect();
            for chunk in stream.chunks(7) {
                file.append(chunk);
            }
            let mut reader = OutputReader::new(file.output.clone(), 0);
            let read = read_on(&mut reader, &mut 0, &stream);
            assert_eq!(read, (length, 0), "cap {cap}");
        }
    }

    #[test]
    fn beyond_the_cap_the_first_and_the_last_part_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = capture(folder.path(), 1600);
        file.append(&b"x".repeat(1_000_000));
        file.append(b"THE END\n");
        let mut reader = OutputReader::new(file.output.clone(), 0);
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next_piece().unwrap() {
            pieces.extend_from_slice(&piece);
        }
        let text = String::from_utf8(pieces).unwrap();
        // 8 segments of 100 bytes; the last one has 8.
        let line = left_out_line(1_000_008 - 800 - 708);
        let tail = "x".repeat(700) + "THE END\n";
        assert_eq!(text, "x".repeat(800) + &line + &tail);
    }

    /// A slow reader, a fast reader and a reader from the start agree with the stream, for random caps and chunks, and
    /// the disk never holds more than the cap and one chunk.
    #[test]
    fn every_reader_gets_parts_of_the_stream_and_exact_counts() {
        for seed in 1..=40_u64 {
            let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let folder = tempfile::tempdir().unwrap();
            let cap = 16 + numbers.below(400);
            let mut file = capture(folder.path(), cap);
            let mut stream = Vec::new();
            let (mut fast, mut slow) = (
                OutputReader::new(file.output.clone(), 0),
                OutputReader::new(file.output.clone(), 0),
            );
            let (mut fast_at, mut slow_at) = (0, 0);
            for _ in 0..60 {
                let length = numbers.below(60);
                let chunk: Vec<u8> = (0..length)
                    .map(|_| b'a' + numbers.below(26) as u8)
                    .collect();
                stream.extend_from_slice(&chunk);
                file.append(&chunk);
                // A chunk of less than the segments together is still there for a reader that reads each time.
                let (_, left_out) = read_on(&mut fast, &mut fast_at, &stream);
                assert!(left_out == 0 || length > cap / 2 / SEGMENTS * (SEGMENTS - 1));
                assert_eq!(fast_at, stream.len() as u64, "seed {seed}");
                if numbers.below(8) == 0 {
                    read_on(&mut slow, &mut slow_at, &stream);
                    assert_eq!(slow_at, stream.len() as u64, "seed {seed}");
                }
                let files = std::fs::read_dir(folder.path()).unwrap();
                let bytes: u64 = files.map(|f| f.unwrap().metadata().unwrap().len()).sum();
                assert!(bytes <= cap + length, "seed {seed}: {bytes} of {cap}");
            }
            let mut late_at = 0;
            let mut late = OutputReader::new(file.output.clone(), 0);
            let (kept, left_out) = read_on(&mut late, &mut late_at, &stream);
            assert_eq!(kept + left_out, stream.len() as u64, "seed {seed}");
            // Without its oldest segment, the tail has at least 7 eighths of its half of the cap.
            let at_least = (stream.len() as u64).min(cap - 2 * (cap / 2 / SEGMENTS));
            assert!(kept >= at_least, "seed {seed}: {kept} of {cap}");
        }
    }

    #[test]
    fn lost_writes_are_counted_and_later_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = capture(folder.path(), 1600);
        file.append(b"first ");
        // A file that is open for reading only takes no output.
        file.file = File::open(file.output.head()).unwrap();
        file.append(b"lost");
        file.append(b"last");
        let mut reader = OutputReader::new(file.output.clone(), 0);
        let (kept, left_out) = read_on(&mut reader, &mut 0, b"first lostlast");
        assert_eq!((kept, left_out), (10, 4));
        assert_eq!(file.output.segments().unwrap(), [10]);
    }

    /// Each failed write ends a segment. The short segments must not displace the full ones.
    #[test]
    fn failed_writes_do_not_shrink_the_last_part() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = capture(folder.path(), 1600);
        let stream: Vec<u8> = (0..10_160).map(|n| b'a' + (n % 26) as u8).collect();
        let (start, rest) = stream.split_at(10_000);
        file.append(&start[..9950]);
        file.append(&start[9950..]);
        for pair in rest.chunks(8) {
            // A file that is open for reading only takes no output.
            file.file = File::open(file.output.head()).unwrap();
            file.append(&pair[..3]);
            file.append(&pair[3..]);
        }
        let mut reader = OutputReader::new(file.output.clone(), 0);
        let (kept, left_out) = read_on(&mut reader, &mut 0, &stream);
        assert_eq!(kept + left_out, 10_160);
        // The head has 800 bytes, and so has the last part at most.
        assert!((800 + 600..=1600).contains(&kept), "{kept}");
    }

    #[test]
    fn number_of_segments_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = capture(folder.path(), 16_000);
        file.append(&b"x".repeat(8000));
        for _ in 0..100 {
            file.append(b"kept");
            file.file = File::open(file.output.head()).unwrap();
            file.append(b"lost");
        }
        assert_eq!(file.output.segments().unwrap().len(), MAX_SEGMENTS);
    }
}
