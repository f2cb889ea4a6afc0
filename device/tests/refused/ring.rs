use warpbell::wqe::WqeIndex;
use warpbell::{SendQueueHandle, held};

fn main() {
    let queue = SendQueueHandle::none();
    held::publish(&queue, WqeIndex(40));
    warpbell::queue::doorbell::publish(&queue, 40);
}
