//! Measures the time from a submit to the start of its process, on an idle cluster.
//!
//! `cargo run --release -p lattice-client --example submit_latency -- CONTEXT_FILE PROJECT [COUNT]`
//!
//! Each job prints its own start time (`date +%s%N`). The latency is the difference from the client's time before the
//! submit, so the client and the node must be one machine with one clock. Submits are sequential, so the cluster is
//! idle at each of them. The example prints one JSON object, in milliseconds.

use anyhow::{Context as _, ensure};
use futures::TryStreamExt as _;
use lattice_client::{AllocationRequest, Client, Endpoint, LogOptions, SubmitOptions};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: submit_latency CONTEXT_FILE PROJECT [COUNT]";
    let (file, project) = (args.next().context(usage)?, args.next().context(usage)?);
    let count: usize = args.next().map_or(Ok(100), |n| n.parse()).context(usage)?;
    ensure!(count > 0, usage);
    let context: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let text = |key: &str| {
        context[key]
            .as_str()
            .map(str::to_owned)
            .context("not a context file")
    };
    let client = Client::new(Endpoint {
        url: text("server")?,
        ca_pem: text("ca_pem")?,
        token: text("token")?.into(),
    })?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(one(&client, &project).await?);
    }
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
    let result = serde_json::json!({
        "submits": count,
        "submit_to_process_ms": {
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0),
        },
    });
    println!("{result:#}");
    Ok(())
}

/// Submits one job. Returns the time in milliseconds from just before the submit until the job's process reads the
/// clock.
async fn one(client: &Client, project: &str) -> anyhow::Result<f64> {
    let request = AllocationRequest {
        project: project.to_owned(),
        nodes: 1,
        argv: vec!["/bin/date".to_owned(), "+%s%N".to_owned()],
        walltime: Some("1m".to_owned()),
        ..AllocationRequest::default()
    };
    let sent = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let submitted = client.submit(&request, SubmitOptions::default()).await?;
    let id = submitted.id.context("the response has no allocation id")?;
    loop {
        let allocation = client.allocation(id).await?;
        ensure!(
            allocation.state != "failed",
            "{id} failed: {:?}",
            allocation.stop
        );
        if allocation.state == "completed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let chunks: Vec<_> = client
        .logs(id, LogOptions::default())
        .await?
        .try_collect()
        .await?;
    let output = String::from_utf8(chunks.concat())?;
    let started = Duration::from_nanos(output.trim().parse()?);
    Ok(started.saturating_sub(sent).as_secs_f64() * 1000.0)
}
