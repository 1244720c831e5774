//! Driver event listener: events of GPU and NIC drivers, on a separate thread.

use super::NodeHealth;
use super::announcement::HealthSummary;
use lattice_conformance::{
    Class, ReadingState,
    driver_events::{GpuEvent, GpuEventSource},
};
use lattice_hwprobe::gpu_events::{GpuEventSources, GpuEventWatch, KernelLog, SourceState};
use lattice_hwprobe::{Host, NvmlSource};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait before the thread checks its stop flag. New events wake the thread earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest delay of the kernel's log after the driver's event for the same fault; the log adds details.
const KERNEL_LOG_DELAY: Duration = Duration::from_millis(300);
/// Number of events kept for matching with the other source.
const MAX_EVENTS: usize = 256;
/// Maximum number of log lines for events that arrive together: an application can raise thousands.
const MAX_LOGGED: usize = 16;
/// Note code for a node with GPUs and no source of their events.
const NO_EVENT_SOURCE: &str = "xids.unheard";

/// Stops the thread when dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl NodeHealth {
    /// Listens as long as the future is polled, if the node has a GPU or a NIC that the kernel's log covers. Sources of
    /// GPU events are opened once the node has a GPU: on any other node, their absence is normal.
    pub(crate) async fn listen(self) {
        let mut said = self.summary();
        let has_devices = |said: &HealthSummary| said.has_gpus || said.has_mlx5;
        loop {
            let has_gpus = match said.wait_for(has_devices).await {
                Ok(said) => said.has_gpus,
                Err(_) => return,
            };
            let stop = StopOnDrop(Arc::default());
            let (this, is_over) = (self.clone(), stop.0.clone());
            let listen = move || this.listen_until(&is_over, has_gpus);
            let thread = std::thread::Builder::new().name("driver-events".to_owned());
            if let Err(error) = thread.spawn(listen) {
                tracing::error!(%error, "driver events cannot be received");
                self.change(|state| state.note(vec![NO_EVENT_SOURCE]));
                return;
            }
            if has_gpus {
                std::future::pending::<()>().await;
            }
            // The restarted listener recognises earlier records of the log by their sequence numbers.
            if said.wait_for(|said| said.has_gpus).await.is_err() {
                return;
            }
            drop(stop);
        }
    }

    fn listen_until(&self, is_over: &AtomicBool, has_gpus: bool) {
        let sources = sources(&self.0.host, has_gpus);
        let mut watch = GpuEventWatch::start(sources);
        let mut source_states = SourceStates::default();
        while !is_over.load(Ordering::Acquire) {
            let events = next(&mut watch);
            if !events.is_empty() {
                log_events(&events);
                self.events(&events);
            }
            let confirmed = watch.confirmed();
            if !confirmed.is_empty() {
                self.change(|state| {
                    confirmed
                        .iter()
                        .for_each(|event| state.record_confirmation(event))
                });
            }
            if let Some(notes) =
                source_states.record_states((watch.nvml(), watch.kernel_log()), has_gpus)
            {
                self.change(|state| state.note(notes));
            }
        }
    }
}

fn log_events(events: &[GpuEvent]) {
    for event in events.iter().take(MAX_LOGGED) {
        tracing::warn!(
            device = event.address,
            event = %event.code,
            source = %event.source,
            detail = event.detail,
            "driver reported an event"
        );
    }
    let more = events.len().saturating_sub(MAX_LOGGED);
    if more > 0 {
        tracing::warn!(more, "further driver events not logged");
    }
}

/// Returns new events, after a wait for the kernel's log if the driver alone reported one. The log contains the action
/// that the driver requests; the driver's own event does not.
fn next(watch: &mut GpuEventWatch) -> Vec<GpuEvent> {
    let mut new = watch.poll(POLL_INTERVAL);
    let is_bare = |event: &GpuEvent| event.source == GpuEventSource::Nvml;
    if new.iter().any(is_bare) && watch.kernel_log().present().is_some() {
        new.extend(watch.poll(KERNEL_LOG_DELAY));
    }
    for event in &mut new {
        if let Some(now) = watch.log().get(event.seq) {
            event.clone_from(now);
        }
    }
    new
}

/// Event sources; the kernel's log is below the same root as all other files.
fn sources(host: &Host, has_gpus: bool) -> GpuEventSources {
    let log = host.root.path().join("dev/kmsg");
    let is_there = host.root.path() == Path::new("/") || log.exists();
    GpuEventSources {
        nvml: match has_gpus && !host.disabled.contains(&Class::Gpu) {
            true => host.nvml.clone(),
            false => NvmlSource::Disabled,
        },
        kernel_log: match is_there {
            true => KernelLog::Device(log),
            false => KernelLog::Disabled,
        },
        max_events: MAX_EVENTS,
    }
}

/// State of the sources at the last check.
#[derive(Default)]
struct SourceStates {
    states: Option<[ReadingState; 2]>,
    has_no_source: bool,
}

impl SourceStates {
    /// Logs changes in the state of the two event sources, and returns the notes if they have changed.
    fn record_states(
        &mut self,
        (nvml, kernel_log): (&SourceState, &SourceState),
        has_gpus: bool,
    ) -> Option<Vec<&'static str>> {
        let states = [state(nvml), state(kernel_log)];
        let before = self.states.replace(states);
        if before == Some(states) {
            return None;
        }
        let named = [("driver", nvml), ("kernel log", kernel_log)];
        for (n, (name, state)) in named.into_iter().enumerate() {
            if before.is_none_or(|before| before[n] != states[n]) {
                log(name, state, if has_gpus { "GPUs" } else { "NICs" });
            }
        }
        // A source that is disabled or has not answered yet is not a fault. For GPUs, the absence of every source is
        // one. Faults of NICs also show in the state of their ports.
        let is_silent = has_gpus
            && !states.contains(&ReadingState::Present)
            && states.iter().any(|state| *state != ReadingState::Disabled);
        let is_news = is_silent != self.has_no_source;
        self.has_no_source = is_silent;
        is_news.then(|| {
            if is_silent {
                vec![NO_EVENT_SOURCE]
            } else {
                Vec::new()
            }
        })
    }
}

/// State of a source. A driver that reports on no GPU counts as unsupported.
fn state(source: &SourceState) -> ReadingState {
    match source {
        SourceState::Present(sources) if sources.is_empty() => ReadingState::Unsupported,
        other => other.state(),
    }
}

/// Logs the state of a source; `devices`: kind of devices that the events concern.
fn log(source: &str, state: &SourceState, devices: &str) {
    match state {
        SourceState::Present(sources) if sources.is_empty() => {
            tracing::warn!(
                source,
                "events of {devices} unavailable: no device reports any"
            );
        }
        SourceState::Present(_) => {
            tracing::info!(source, "events of {devices} are received");
        }
        SourceState::Disabled { .. } => {}
        unavailable => {
            tracing::warn!(source, state = ?unavailable, "events of {devices} unavailable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::Reading;

    #[test]
    fn notes_missing_gpu_event_source() {
        let off: SourceState = Reading::disabled("not asked");
        let denied: SourceState = Reading::denied("/dev/kmsg");
        let gpus = SourceStates::default().record_states((&off, &denied), true);
        assert_eq!(gpus, Some(vec![NO_EVENT_SOURCE]));
        let nics = SourceStates::default().record_states((&off, &denied), false);
        assert_eq!(nics, None);
    }
}
