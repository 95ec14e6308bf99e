//! Where openraft puts the outcome of a write: a closure that runs once.
//!
//! openraft's own responders warn when nobody waits any more; here that is ordinary, because a caller's
//! deadline may pass first. The closure also owns the room that the write takes in flight, so the room
//! is free when the write is done, not when its caller lost patience.

use openraft::raft::responder::Responder;

use crate::types::TypeConfig;

/// Runs once with the outcome; dropped without one when Raft stops.
pub struct Answer<T> {
    then: Box<dyn FnOnce(T) + Send>,
}

impl<T> Answer<T> {
    /// What to do with the outcome. Runs on openraft's tasks: it must not block.
    pub fn new(then: impl FnOnce(T) + Send + 'static) -> Answer<T> {
        Answer { then: Box::new(then) }
    }
}

impl<T: Send + 'static> Responder<TypeConfig, T> for Answer<T> {
    fn on_complete(self, result: T) {
        (self.then)(result);
    }
}
