//! Queues in a GPU's memory, with a driver that is a fake: `host-init`'s, whose "GPU memory" is memory of the host, so
//! that the software HCA reaches it by its address, as a card does by nvidia_peermem.

use std::process::Command;

use warpbell_host_init::mlx5::Mlx5Options;
use warpbell_host_init::{
    Access, Buffer, Device, Error, Gpu, MemoryRegion, Nic, Placement, QueuePairConfig, connect,
};
use warpbell_proofs::preloaded::{self, Engine};

use super::fake::fake_driver;
use super::provider::write;

/// Runs `body` where there are the device and the fake driver, to which `what` happens.
fn with_gpu(name: &str, what: &str, body: impl FnOnce(Gpu, Device)) {
    let prepare = |command: &mut Command| {
        command
            .env("LD_LIBRARY_PATH", fake_driver())
            .env("FAKE_CUDA", what);
    };
    preloaded::test_with(Engine::On, name, prepare, || {
        let gpu = Gpu::open(0).unwrap();
        let options = Mlx5Options::new("mlx5_0");
        body(gpu, Device::open(Nic::Mlx5(options)).unwrap());
    });
}

/// The fake driver, which is loaded already.
fn driver() -> libloading::Library {
    // SAFETY: loading it again runs nothing.
    unsafe { libloading::Library::new("libcuda.so.1").unwrap() }
}

/// Pages of registers that the fake driver has mapped.
fn registers() -> i32 {
    // SAFETY: the driver has this function of that type.
    unsafe {
        let driver = driver();
        let count = driver.get::<extern "C" fn() -> i32>(b"fakeRegisters\0");
        count.unwrap()()
    }
}

/// Whether somebody wanted copies to that address to wait until they are done.
fn synchronised(address: u64) -> bool {
    // SAFETY: the driver has this function of that type.
    unsafe {
        let driver = driver();
        let asked = driver.get::<extern "C" fn(u64) -> i32>(b"fakeSynchronised\0");
        asked.unwrap()(address) == 1
    }
}

fn config(placement: Placement) -> QueuePairConfig {
    QueuePairConfig {
        placement: Some(placement),
        // The tests' own threads post.
        state_placement: Some(Placement::Host),
        ..QueuePairConfig::granting(Access::all())
    }
}

fn region(device: &Device, placement: Placement) -> Result<MemoryRegion, Error> {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let buffer = Buffer::placed(placement, 64)?;
    device.protection_domain()?.register(buffer, access)
}

fn writes(gpu: Gpu, device: &Device) {
    let domain = device.protection_domain().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    for placement in [Placement::Gpu(gpu), Placement::Pinned(gpu)] {
        // More than a page of registers has.
        let mut pairs: Vec<_> = (0..6)
            .map(|_| domain.queue_pair(&config(placement)).unwrap())
            .collect();
        assert!((2..=6).contains(&registers()), "{}", registers());
        let [source, target] = [0, 1].map(|_| {
            let buffer = Buffer::placed(placement, 64).unwrap();
            domain.register(buffer, access).unwrap()
        });
        let (left, right) = pairs.split_at_mut(3);
        for (number, (one, other)) in left.iter_mut().zip(right).enumerate() {
            connect(one, other).unwrap();
            let sent = [number as u8 + 1; 64];
            source.write(0, &sent).unwrap();
            write(one, &source, &target.remote());
            let mut arrived = [0; 64];
            target.read(0, &mut arrived).unwrap();
            assert_eq!(arrived, sent);
        }
        drop(pairs);
        assert_eq!(registers(), 0, "nothing stays mapped");
    }
}

/// The device takes no dmabuf: what lies in the GPU's memory is then reached by its address.
#[test]
fn by_address_where_a_dmabuf_is_not_taken() {
    let name = "card::gpu::by_address_where_a_dmabuf_is_not_taken";
    with_gpu(name, "none", |gpu, device| writes(gpu, &device));
}

#[test]
fn by_address_where_there_is_no_dmabuf() {
    let name = "card::gpu::by_address_where_there_is_no_dmabuf";
    with_gpu(name, "no-dmabuf", |gpu, device| writes(gpu, &device));
}

/// A card's completions in host memory may overtake the data that they tell of, if those lie in the GPU's memory.
#[test]
fn completions_and_data_take_one_path() {
    let name = "card::gpu::completions_and_data_take_one_path";
    with_gpu(name, "none", |gpu, device| {
        let (in_gpu, in_host) = (Placement::Gpu(gpu), Placement::Pinned(gpu));
        let domain = device.protection_domain().unwrap();
        let pair = |completions| {
            domain.queue_pair(&QueuePairConfig {
                completion_placement: Some(completions),
                state_placement: None,
                ..config(in_gpu)
            })
        };
        let register = |placement, access| {
            let buffer = Buffer::placed(placement, 64).unwrap();
            domain.register(buffer, access)
        };
        let pair_in_host = pair(in_host).unwrap();
        let refused = register(in_gpu, Access::LOCAL_WRITE);
        assert!(matches!(refused, Err(Error::TwoPaths)), "{refused:?}");
        // What nobody writes, and what lies in host memory, is as before.
        register(in_gpu, Access::REMOTE_READ).unwrap();
        register(in_host, Access::LOCAL_WRITE).unwrap();
        drop(pair_in_host);

        let data = register(in_gpu, Access::LOCAL_WRITE).unwrap();
        let refused = pair(in_host);
        assert!(matches!(refused, Err(Error::TwoPaths)), "{refused:?}");
        pair(in_gpu).unwrap();
        data.deregister().unwrap();
        pair(in_host).unwrap();
    });
}

#[test]
fn a_driver_that_maps_no_registers_is_named() {
    let name = "card::gpu::a_driver_that_maps_no_registers_is_named";
    with_gpu(name, "no-registers", |gpu, device| {
        let domain = device.protection_domain().unwrap();
        let error = domain.queue_pair(&config(Placement::Gpu(gpu))).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("cannot reach the card's doorbells (CUDA_ERROR_NOT_PERMITTED)")
                && text.contains("PeerMappingOverride=1"),
            "{text}"
        );
        // Data lie there all the same, in pages of the GPU of their own; no copy to them runs behind its caller.
        let regions = [(); 3].map(|()| region(&device, Placement::Gpu(gpu)).unwrap());
        for region in &regions {
            let address = region.remote().address;
            assert!(address.is_multiple_of(64 << 10), "{address:#x}");
            assert!(synchronised(address), "{address:#x}");
        }
    });
}

/// A page of registers that another library of the process has registered is not ours to give back.
#[test]
fn registers_that_others_have_mapped_stay() {
    let name = "card::gpu::registers_that_others_have_mapped_stay";
    with_gpu(name, "others-registered", |gpu, device| {
        let domain = device.protection_domain().unwrap();
        let pair = domain.queue_pair(&config(Placement::Gpu(gpu))).unwrap();
        let mapped = registers();
        drop(pair);
        assert_eq!((mapped, registers()), (1, 1));
    });
}
