//! ComP-Net's PEs as the ranks of a job.

use warpbell_patterns::cpnet::host::{CpnetConfig, cpnet_init, cpnet_shmalloc};
use warpbell_patterns::cpnet::{
    cpnet_ctx_create, cpnet_ctx_destroy, cpnet_shmem_char_p, cpnet_shmem_char_wait_until,
};
use warpbell_patterns::proxy::host::Proxy;

use super::*;

/// Each rank puts a byte of its own to all, itself included.
#[test]
fn each_pe_puts_to_all() {
    for (port, wire) in (22_040..).zip(WIRES) {
        job(port, 3, wire, |world| {
            let (proxy, own) = (Proxy::start(1).unwrap(), world.rank());
            let config = CpnetConfig {
                heap_bytes: 4096,
                queue_pair: patient(),
            };
            let mut cpnet = cpnet_init(&proxy, world, 1, &config).unwrap();
            cpnet_shmalloc(&cpnet, 5).unwrap();
            let bytes = cpnet_shmalloc(&cpnet, 3).unwrap();
            assert_eq!(bytes.offset(), 8, "behind whole words");
            let value = |from: u32, to: u32| (16 * (from + 1) + to) as u8;
            let mut ctx = cpnet_ctx_create(cpnet.handle()).unwrap();
            for to in 0..3 {
                let place = bytes.at(own.into()).unwrap();
                cpnet_shmem_char_p(&mut ctx, place, value(own, to), to, LIMIT).unwrap();
            }
            for from in 0..3 {
                let place = bytes.at(from.into()).unwrap();
                cpnet_shmem_char_wait_until(place, value(from, own), LIMIT).unwrap();
            }
            cpnet_ctx_destroy(ctx, LIMIT).unwrap();
            let mut found = [0; 3];
            cpnet.read(bytes, &mut found).unwrap();
            assert_eq!(found, [0, 1, 2].map(|from| value(from, own)));
            cpnet.world().unwrap().barrier().unwrap();
        });
    }
}
