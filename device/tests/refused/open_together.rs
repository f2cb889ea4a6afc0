use warpbell::{Block, Exclusive, ReceiveQueueHandle, SendQueueHandle, Warp};

fn open(send: SendQueueHandle<'_>, receive: ReceiveQueueHandle<'_>) {
    let _ = send.open_together::<Exclusive, Warp>();
    let _ = receive.open_together::<Exclusive, Block>();
}

fn main() {
    let _ = open;
}
