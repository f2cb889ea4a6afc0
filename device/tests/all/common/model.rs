//! A run of loom's.

use loom::thread;
use warpbell::{LeftOut, leave_out};

/// Runs a model, with something left out of what orders its accesses.
pub fn model(without: Option<LeftOut>, body: impl Fn() + Sync + Send + 'static) {
    model_with(without, 3, body);
}

/// The same where a thread is stopped so many times in favour of another one.
pub fn model_with(
    without: Option<LeftOut>,
    preemptions: usize,
    body: impl Fn() + Sync + Send + 'static,
) {
    leave_out(without);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let body = std::sync::Arc::new(body);
    builder.check(move || {
        // In a thread of its own: loom hardly ever preempts the model's main one.
        let body = std::sync::Arc::clone(&body);
        thread::spawn(move || body()).join().unwrap();
    });
}
