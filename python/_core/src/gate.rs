//! The one gate for long calls: the interpreter lock is free while the core works, Ctrl-C is looked for, and a panic
//! becomes an exception.
//!
//! The work runs on a thread of its own. The calling thread, the only one that may run Python's signal handlers,
//! sleeps until it is told something or [`TICK`] has passed, and then takes the lock for a moment.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use slablab::run::Cancel;

use crate::error;

/// Longest time between two looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// Events that may wait for the caller. Beyond it the work waits: results must not pile up behind a slow disk.
const WAITING: usize = 64;

/// What the work uses to tell the caller of its progress; any of its threads may.
pub struct Teller<E>(SyncSender<E>);

impl<E> Teller<E> {
    /// Queues an event for the caller.
    pub fn tell(&self, event: E) {
        // The caller listens until every teller is gone, so nothing is lost but after an unwinding caller.
        let _ = self.0.send(event);
    }
}

/// Runs `work` with the interpreter lock released; `hear` gets its events in the calling thread, with the lock. When
/// `hear` or a signal handler raises, the work is cancelled, waited for, and the exception goes on.
pub fn pass<T: Send, E: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Cancel, Teller<E>) -> T + Send,
    hear: impl FnMut(Python<'_>, E) -> PyResult<()> + Send,
) -> PyResult<T> {
    let cancel = Cancel::default();
    py.detach(|| {
        thread::scope(|scope| {
            let (sender, events) = sync_channel(WAITING);
            let worker = scope.spawn(|| work(&cancel, Teller(sender)));
            let heard = listen(&events, hear);
            if heard.is_err() {
                cancel.cancel();
            }
            // Nobody listens from here on: a teller must not wait for room.
            drop(events);
            let result = worker.join();
            heard?;
            result.map_err(|payload| error::panicked(payload.as_ref()))
        })
    })
}

/// Hands events on until the work has ended, or something raises.
fn listen<E>(events: &Receiver<E>, mut hear: impl FnMut(Python<'_>, E) -> PyResult<()>) -> PyResult<()> {
    loop {
        let event = match events.recv_timeout(TICK) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        Python::attach(|py| {
            event.map_or(Ok(()), |event| hear(py, event))?;
            py.check_signals()
        })?;
    }
}
