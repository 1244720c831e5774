//! Line reader for plain, gzip and zstd files. The first bytes of a file determine its compression, not the file name.

use flate2::bufread::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Longest stored line, bytes. A longer line is not a valid line of a trace, and could fill the memory.
const MAX_LINE: u64 = 1 << 20;

/// Error of a line reader.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened or read.
    #[error("the file cannot be read")]
    Read(#[source] io::Error),
    /// Truncated compressed stream.
    #[error(
        "the file is truncated: the {compression} stream ends prematurely after line {lines}; copy the file again"
    )]
    CutOff {
        /// Compression: gzip or zstd.
        compression: &'static str,
        /// Number of complete lines before the error.
        lines: u64,
    },
    /// Corrupt compressed stream.
    #[error("the {packing} stream is corrupt after line {lines}: {why}")]
    Broken {
        /// Compression: gzip or zstd.
        packing: &'static str,
        /// Number of complete lines before the error.
        lines: u64,
        /// Error text of the decoder.
        why: String,
    },
}

/// Reader for the lines of a plain or compressed file.
pub struct Lines {
    input: Box<dyn BufRead + Send>,
    /// Compression; `None` for a plain file.
    packing: Option<&'static str>,
    number: u64,
    bytes: Vec<u8>,
    /// Longest line, bytes; a longer line is cut.
    longest: u64,
}

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Line number, from 1.
    pub number: u64,
    /// Text without the line end, surrounding white space, and a byte-order mark at the start of the file.
    pub text: &'a str,
    /// Whether the line is not UTF-8; invalid bytes are replaced.
    pub is_lossy: bool,
    /// Whether the line exceeds the limit; `text` is then its beginning.
    pub is_cut: bool,
}

impl Lines {
    /// Opens a file.
    ///
    /// # Errors
    /// When the file cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        Self::read(File::open(path).map_err(InputError::Read)?)
    }

    /// Reads from any source of bytes.
    ///
    /// # Errors
    /// When the first bytes cannot be read.
    pub fn read(mut input: impl Read + Send + 'static) -> Result<Self, InputError> {
        let mut first = Vec::with_capacity(ZSTD_MAGIC.len());
        (&mut input)
            .take(ZSTD_MAGIC.len() as u64)
            .read_to_end(&mut first)
            .map_err(InputError::Read)?;
        let (is_gzip, is_zstd) = (first.starts_with(GZIP_MAGIC), first == ZSTD_MAGIC);
        let input = BufReader::with_capacity(1 << 16, io::Cursor::new(first).chain(input));
        let (input, packing): (Box<dyn BufRead + Send>, _) = if is_gzip {
            let unpacked = MultiGzDecoder::new(input);
            (Box::new(BufReader::new(unpacked)), Some("gzip"))
        } else if is_zstd {
            let unpacked = zstd::Decoder::with_buffer(input).map_err(InputError::Read)?;
            (Box::new(BufReader::new(unpacked)), Some("zstd"))
        } else {
            (Box::new(input), None)
        };
        Ok(Self {
            input,
            packing,
            number: 0,
            bytes: Vec::new(),
            longest: MAX_LINE,
        })
    }

    /// Limits lines to `longest` bytes.
    #[must_use]
    pub fn with_max_line_bytes(self, longest: u64) -> Self {
        Self { longest, ..self }
    }

    /// Returns the next line; `None` after the last line. `text` is the buffer for a line that is not UTF-8.
    ///
    /// # Errors
    /// When the file cannot be read, or its compressed stream is truncated or corrupt.
    pub fn next<'a>(&'a mut self, text: &'a mut String) -> Result<Option<Line<'a>>, InputError> {
        self.bytes.clear();
        let most = self.longest + 1;
        let mut limited = (&mut self.input).take(most);
        let found = limited.read_until(b'\n', &mut self.bytes);
        let mut is_cut = false;
        let found = match found {
            Ok(bytes) if bytes as u64 == most && self.bytes.last() != Some(&b'\n') => {
                is_cut = true;
                self.input.skip_until(b'\n').map(|_| bytes)
            }
            other => other,
        };
        if found.map_err(|error| self.failed(error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let lossy = String::from_utf8_lossy(&self.bytes);
        let is_lossy = matches!(lossy, std::borrow::Cow::Owned(_));
        let kept: &str = match lossy {
            std::borrow::Cow::Borrowed(kept) => kept,
            std::borrow::Cow::Owned(made) => {
                *text = made;
                text
            }
        };
        // Spreadsheets and editors of Windows begin a file with a byte-order mark.
        let kept = match kept.strip_prefix('\u{feff}') {
            Some(rest) if self.number == 1 => rest,
            _ => kept,
        };
        Ok(Some(Line {
            number: self.number,
            text: kept.trim(),
            is_lossy,
            is_cut,
        }))
    }

    /// Returns the next line with its white space and line end; invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// As for [`Lines::next`].
    pub fn next_unchanged<'a>(
        &'a mut self,
        text: &'a mut String,
    ) -> Result<Option<&'a str>, InputError> {
        if self.next(text)?.is_none() {
            return Ok(None);
        }
        *text = String::from_utf8_lossy(&self.bytes).into_owned();
        Ok(Some(text))
    }

    /// Number of lines read.
    pub fn count(&self) -> u64 {
        self.number
    }

    fn failed(&self, error: io::Error) -> InputError {
        let lines = self.number;
        match self.packing {
            None => InputError::Read(error),
            Some(packing) if error.kind() == io::ErrorKind::UnexpectedEof => InputError::CutOff {
                compression: packing,
                lines,
            },
            Some(packing) => InputError::Broken {
                packing,
                lines,
                why: error.to_string(),
            },
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("packing", &self.packing)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
