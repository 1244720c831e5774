//! Log streaming: captured output of a rank, sent in chunks.

use super::rank::Rank;
use crate::attempt::AttemptDir;
use bytes::{Bytes, BytesMut};
use lattice_agent_rpc::ReadLog;
use lattice_mesh::{HandlerFailed, ItemSender};
use std::io::SeekFrom;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Chunk size, bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Poll interval of an output that may grow: not noticeable at a terminal.
const POLL: Duration = Duration::from_millis(100);

type Item = Result<Bytes, String>;

/// Sends the output from the offset on and, with `follow`, further output until the rank ends.
pub(super) async fn send(
    dir: &AttemptDir,
    rank: Option<&Rank>,
    request: &ReadLog,
    to: &ItemSender<Item>,
) -> Result<(), HandlerFailed> {
    if !dir.exists() {
        let (allocation, attempt) = (request.key.allocation, request.key.attempt);
        let unknown =
            format!("unknown attempt on this node: allocation {allocation}, attempt {attempt}");
        return to.send(&Err(unknown)).await;
    }
    let path = dir.output(request.stream);
    let mut file: Option<File> = None;
    let mut offset = request.offset;
    loop {
        // Checked before the read, so that the read includes all output up to the end.
        let is_last = !request.follow || rank.is_none_or(Rank::has_ended);
        if file.is_none() {
            file = match File::open(&path).await {
                Ok(opened) => Some(opened),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return to.send(&Err(error.to_string())).await,
            };
        }
        if let Some(file) = &mut file {
            match send_all(file, &mut offset, to).await? {
                Ok(()) => {}
                Err(error) => return to.send(&Err(error.to_string())).await,
            }
        }
        if is_last {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = to.closed() => return Ok(()),
        }
    }
}

/// Sends from `offset` to the present end of the file. The inner error is that of the file.
async fn send_all(
    file: &mut File,
    offset: &mut u64,
    to: &ItemSender<Item>,
) -> Result<std::io::Result<()>, HandlerFailed> {
    if let Err(error) = file.seek(SeekFrom::Start(*offset)).await {
        return Ok(Err(error));
    }
    loop {
        let mut piece = BytesMut::with_capacity(CHUNK_BYTES);
        match file.read_buf(&mut piece).await {
            Ok(0) => return Ok(Ok(())),
            Ok(n) => {
                *offset += n as u64;
                to.send(&Ok(piece.freeze())).await?;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}
