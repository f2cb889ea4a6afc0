use warpbell::{Exclusive, GpuShared, QueueState, Sharing};

fn by_the_type(state: &QueueState) {
    let _ = Exclusive::open(Default::default(), state);
    let _ = Exclusive::follower(Default::default(), 0);
}

fn by_a_bound<S: Sharing>(state: &QueueState) {
    let _ = S::open(Default::default(), state);
    let mut ledger = S::follower(Default::default(), 0);
    ledger.reserve_unchecked(state, 1);
}

fn main() {
    by_the_type(&QueueState::new());
    by_a_bound::<GpuShared>(&QueueState::new());
}
