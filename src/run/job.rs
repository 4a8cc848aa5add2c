//! A job that is longer than any affordable run: its time follows from a window of it (`scaled_by`, `steady`).

/// What a window saw of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct JobSeen {
    /// Messages of the whole job.
    pub(super) operations: u64,
    /// Messages written in the window, and read in it.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl JobSeen {
    /// How many times the window the job is; half of a message is its writing. `None`: only one half was seen (sockets that
    /// fill up, or are drained), or neither, which says nothing about a whole message.
    pub(super) fn scaled_by(&self) -> Option<f64> {
        let seen = (self.sent + self.received) as f64 / 2.0;
        (self.sent > 0 && self.received > 0).then(|| self.operations as f64 / seen)
    }

    /// Neither half was seen twice as often as the other: the sockets are about as full at the end as at the start.
    pub(super) fn is_steady(&self) -> bool {
        let (less, more) = (self.sent.min(self.received), self.sent.max(self.received));
        less > 0 && more <= 2 * less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_scaled_from_whole_messages_alone() {
        let seen = |sent, received| JobSeen { operations: 1000, sent, received };
        assert_eq!(seen(60, 40).scaled_by(), Some(20.0));
        assert_eq!((seen(100, 0).scaled_by(), seen(0, 100).scaled_by(), seen(0, 0).scaled_by()), (None, None, None));
        assert_eq!(
            [seen(60, 40), seen(60, 30), seen(60, 29), seen(0, 0)].map(|s| s.is_steady()),
            [true, true, false, false]
        );
    }
}
