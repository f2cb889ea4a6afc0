use warpbell::cpu::{Hooks, ONE_THREAD, install};

static HOOKS: Hooks = Hooks {
    shared: |_, _| core::ptr::null_mut(),
    ..ONE_THREAD
};

fn main() {
    install(&HOOKS);
}
