//! Lines of a file, one at a time: plain, gzip or zstd, told apart by their first bytes and not by a name.

use flate2::bufread::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Longest line that is kept; what is longer is no line of a trace, and could be all of a 10 GB file.
const MAX_LINE: u64 = 1 << 20;

/// Why a file gave no more lines.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// No such file, or the disk failed.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// The packed stream ends in the middle.
    #[error(
        "it is cut off: the {packing} stream ends in the middle, after line {lines}; copy the file again"
    )]
    CutOff {
        /// gzip or zstd.
        packing: &'static str,
        /// Whole lines before that.
        lines: u64,
    },
    /// The packed stream is broken.
    #[error("its {packing} stream is broken after line {lines}: {why}")]
    Broken {
        /// gzip or zstd.
        packing: &'static str,
        /// Whole lines before that.
        lines: u64,
        /// What the decoder says.
        why: String,
    },
}

/// See the module.
pub struct Lines {
    input: Box<dyn BufRead + Send>,
    /// How it is packed, if it is.
    packing: Option<&'static str>,
    number: u64,
    bytes: Vec<u8>,
    /// What is longer is cut.
    longest: u64,
}

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// Without its end and without white space around it.
    pub text: &'a str,
    /// Not UTF-8: what could not be read is replaced.
    pub is_lossy: bool,
    /// Longer than anything a trace has: this is its beginning.
    pub is_cut: bool,
}

impl Lines {
    /// Of a file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        Self::read(File::open(path).map_err(InputError::Read)?)
    }

    /// Of any bytes.
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

    /// With lines of so many bytes at the most.
    #[must_use]
    pub fn as_long_as(self, longest: u64) -> Self {
        Self { longest, ..self }
    }

    /// The next line; `None` after the last one. `text` holds what must outlive the call where the bytes are not
    /// text.
    ///
    /// # Errors
    /// When there is none although the file goes on.
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
        Ok(Some(Line {
            number: self.number,
            text: kept.trim(),
            is_lossy,
            is_cut,
        }))
    }

    /// The next line as it is, with its end; what is no text of it is replaced.
    ///
    /// # Errors
    /// As [`Lines::next`].
    pub fn next_whole<'a>(
        &'a mut self,
        text: &'a mut String,
    ) -> Result<Option<&'a str>, InputError> {
        if self.next(text)?.is_none() {
            return Ok(None);
        }
        *text = String::from_utf8_lossy(&self.bytes).into_owned();
        Ok(Some(text))
    }

    /// Lines read so far.
    pub fn count(&self) -> u64 {
        self.number
    }

    fn failed(&self, error: io::Error) -> InputError {
        let lines = self.number;
        match self.packing {
            None => InputError::Read(error),
            Some(packing) if error.kind() == io::ErrorKind::UnexpectedEof => {
                InputError::CutOff { packing, lines }
            }
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
