use warpbell::{Doorbell, EarlyAndAfter, Now, SendQueueHandle};

fn by_the_type(queue: &SendQueueHandle<'_>) {
    Now::publish(queue, 40);
    <EarlyAndAfter as Doorbell>::publish(queue, 40);
}

fn by_a_bound<D: Doorbell>(queue: &SendQueueHandle<'_>) {
    D::publish(Default::default(), queue, 40);
}

fn main() {
    by_a_bound::<Now>(&SendQueueHandle::none());
    by_the_type(&SendQueueHandle::none());
}
