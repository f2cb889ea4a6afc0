//! Every verb, with every byte checked.

use mlx5_wqe::{CqeOpcode, Immediate, Local, Masked, Opcode, RemoteKey, Wqe};

use super::world::{World, pattern};

/// Lengths around the packet size of 1,024 bytes.
const LENGTHS: [usize; 9] = [1, 2, 4, 8, 1023, 1024, 1025, 5000, 70_000];

#[test]
fn write_moves_every_byte_and_completes() {
    for length in LENGTHS {
        let mut world = World::new();
        let data = pattern(length, 1);
        let source = world.a.region(&data);
        let target = world.b.region(&vec![0; length]);
        let wqe = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
        let index = world.a.qp.post(wqe);
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("a completion");
        assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::REQUESTER);
        assert_eq!(cqe.tail().opcode(), Opcode::RDMA_WRITE);
        assert_eq!(cqe.tail().qpn(), world.a.qp.number);
        assert_eq!(cqe.tail().wqe_index(), index);
        assert_eq!(cqe.byte_count.get() as usize, length);
        assert_eq!(target.buffer.bytes(), data);
        assert!(world.a.qp.send_cq.poll().is_none());
        assert!(world.b.qp.receive_cq.poll().is_none());
        world.check_canaries();
    }
}

#[test]
fn read_fetches_every_byte() {
    for length in LENGTHS {
        let mut world = World::new();
        let data = pattern(length, 2);
        let source = world.b.region(&data);
        let target = world.a.region(&vec![0; length]);
        world
            .a
            .qp
            .post(Wqe::<1>::read(target.all(), source.remote(0)).signalled());
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("a completion");
        assert_eq!(cqe.tail().opcode(), Opcode::RDMA_READ);
        assert_eq!(cqe.byte_count.get() as usize, length);
        assert_eq!(target.buffer.bytes(), data);
        world.check_canaries();
    }
}

#[test]
fn send_scatters_over_the_receive_segments() {
    for length in LENGTHS {
        let mut world = World::new();
        let data = pattern(length, 3);
        let source = world.a.region(&data);
        let target = world.b.region(&vec![0; length + 64]);
        let third = length as u32 / 3;
        let parts = [third, length as u32 - third + 64];
        let mut list = Vec::new();
        let mut offset = 0;
        for part in parts.into_iter().filter(|part| *part > 0) {
            list.push(target.local(offset, part));
            offset += u64::from(part);
        }
        world.b.qp.post_receive(&list);
        world.a.qp.post(Wqe::<1>::send(source.all()).signalled());
        world.settle();
        assert!(world.a.qp.send_cq.poll().is_some());
        let cqe = world.b.qp.receive_cq.poll().expect("a completion");
        assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND);
        assert_eq!(cqe.byte_count.get() as usize, length);
        assert_eq!(cqe.tail().wqe_counter(), 0);
        assert_eq!(target.buffer.bytes()[..length], data);
        assert_eq!(target.buffer.bytes()[length..], [0; 64]);
        world.check_canaries();
    }
}

#[test]
fn immediate_data_arrives_with_its_completion() {
    let mut world = World::new();
    let data = pattern(3000, 4);
    let source = world.a.region(&data);
    let target = world.b.region(&[0; 3000]);
    world.b.qp.post_receive(&[target.all()]);
    world.b.qp.post_receive(&[]);
    let send = Wqe::<1>::send_immediate(source.all(), Immediate(0xdead_beef));
    world.a.qp.post(send.signalled().solicited());
    let write = Wqe::<1>::write_immediate(source.all(), target.remote(0), Immediate(7));
    world.a.qp.post(write.signalled());
    world.settle();
    let cqe = world.b.qp.receive_cq.poll().expect("the send");
    assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND_IMMEDIATE);
    assert_eq!(cqe.immediate.get(), 0xdead_beef);
    assert!(cqe.tail().is_solicited());
    let cqe = world.b.qp.receive_cq.poll().expect("the write");
    assert_eq!(
        cqe.tail().cqe_opcode(),
        CqeOpcode::RESPONDER_WRITE_IMMEDIATE
    );
    assert_eq!(cqe.immediate.get(), 7);
    assert_eq!(cqe.byte_count.get(), 3000);
    assert_eq!(cqe.tail().wqe_counter(), 1);
    assert!(!cqe.tail().is_solicited());
    assert_eq!(world.a.qp.send_cq.drain().len(), 2);
    assert_eq!(target.buffer.bytes(), data);
}

#[test]
fn a_message_of_no_bytes_needs_no_memory() {
    let mut world = World::new();
    world.b.qp.post_receive(&[]);
    world.b.qp.post_receive(&[]);
    world.a.qp.post(Wqe::<1>::send_empty().signalled());
    let nowhere = mlx5_wqe::Remote {
        address: 0,
        key: RemoteKey(0),
    };
    let write = Wqe::<1>::write_immediate_only(nowhere, Immediate(1));
    world.a.qp.post(write.signalled());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 2);
    let cqes = world.b.qp.receive_cq.drain();
    let lengths: Vec<u32> = cqes.iter().map(|cqe| cqe.byte_count.get()).collect();
    assert_eq!(lengths, [0, 0]);
}

#[test]
fn send_with_invalidate_takes_the_key_away() {
    let mut world = World::new();
    let source = world.a.region(&pattern(64, 5));
    let target = world.b.region(&[0; 64]);
    let window = world.b.region(&[0; 64]);
    world.b.qp.post_receive(&[target.all()]);
    let wqe = Wqe::<1>::send_invalidate(source.all(), window.keys.remote).signalled();
    world.a.qp.post(wqe);
    world.settle();
    let cqe = world.b.qp.receive_cq.poll().expect("a completion");
    assert_eq!(
        cqe.tail().cqe_opcode(),
        CqeOpcode::RESPONDER_SEND_INVALIDATE
    );
    assert_eq!(cqe.immediate.get(), window.keys.remote.0);
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    let write = Wqe::<1>::write(source.all(), window.remote(0)).signalled();
    world.a.qp.post(write);
    world.settle();
    assert!(world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(window.buffer.bytes(), [0; 64]);
}

#[test]
fn inline_data_goes_out_also_around_the_end_of_the_ring() {
    let mut world = World::new();
    let target = world.b.region(&[0; 400]);
    // 400 bytes inline take 7 blocks of the ring's 16: three laps cover every kind of wrap.
    for round in 0..7 {
        let data = pattern(400, round);
        let wqe = Wqe::<7>::write_inline(&data, target.remote(0)).unwrap();
        world.a.qp.post(wqe.signalled());
        world.settle();
        assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
        assert_eq!(target.buffer.bytes(), data, "round {round}");
    }
    for round in 0..7 {
        world.b.qp.post_receive(&[target.all()]);
        let data = pattern(380, round);
        world
            .a
            .qp
            .post(Wqe::<7>::send_inline(&data).unwrap().signalled());
        world.settle();
        assert_eq!(world.b.qp.receive_cq.poll().unwrap().byte_count.get(), 380);
        assert_eq!(target.buffer.bytes()[..380], data, "round {round}");
    }
    world.check_canaries();
}

/// `count` pieces of `source`, each of another size, that make up `length` bytes.
fn pieces(source: &super::world::Region, count: u32, length: u32) -> Vec<Local> {
    let mut offset = 0;
    let mut left = length;
    (0..count)
        .map(|index| {
            let rest = count - index - 1;
            let part = match rest {
                0 => left,
                _ => (1 + index * 97 % 700).min(left - rest),
            };
            let local = source.local(offset, part);
            offset += u64::from(part);
            left -= part;
            local
        })
        .collect()
}

#[test]
fn gather_and_scatter_lists_keep_the_order_of_the_bytes() {
    for (count, length) in [(2, 9), (5, 40), (13, 4000), (26, 26), (26, 20_000)] {
        let mut world = World::new();
        let data = pattern(length as usize, 6);
        let source = world.a.region(&data);
        let back = world.a.region(&vec![0; length as usize]);
        let target = world.b.region(&vec![0; length as usize]);
        let write = Wqe::<7>::write_gather(&pieces(&source, count, length), target.remote(0));
        world.a.qp.post(write.unwrap().signalled());
        world.settle();
        assert_eq!(target.buffer.bytes(), data);
        let read = Wqe::<7>::read_scatter(&pieces(&back, count, length), target.remote(0));
        world.a.qp.post(read.unwrap().signalled());
        world.settle();
        assert_eq!(back.buffer.bytes(), data);
        assert_eq!(world.a.qp.send_cq.drain().len(), 2);
        world.check_canaries();
    }
}

#[test]
fn atomics_change_the_value_and_return_what_was_there() {
    let mut world = World::new();
    let result = world.a.region(&[0xff; 64]);
    let target = world.b.region(&100_u64.to_ne_bytes());
    let at = target.remote(0);
    let found = |offset: u64| result.local(offset * 8, 8);
    let qp = &mut world.a.qp;
    qp.post(Wqe::<1>::fetch_add(found(0), at, 5));
    qp.post(Wqe::<1>::compare_swap(found(1), at, 105, 1000));
    qp.post(Wqe::<1>::compare_swap(found(2), at, 105, 2000).signalled());
    world.settle();
    assert_eq!(result.buffer.u64_at(0), 100);
    assert_eq!(result.buffer.u64_at(8), 105);
    assert_eq!(result.buffer.u64_at(16), 1000);
    assert_eq!(target.buffer.u64_at(0), 1000);
    let cqe = world.a.qp.send_cq.poll().expect("a completion");
    assert_eq!(cqe.tail().opcode(), Opcode::ATOMIC_COMPARE_SWAP);
    assert_eq!(cqe.byte_count.get(), 8);
    assert!(world.a.qp.send_cq.poll().is_none());
}

#[test]
fn masked_atomics_of_8_and_4_bytes() {
    let mut world = World::new();
    let result = world.a.region(&[0; 64]);
    let target = world.b.region(&[0; 16]);
    target
        .buffer
        .write(0, &0x1111_2222_3333_4444_u64.to_ne_bytes());
    target.buffer.write(8, &0x00ff_00ff_u32.to_ne_bytes());
    target.buffer.write(12, &0x5a5a_5a5a_u32.to_ne_bytes());
    let masked = |value: u64, mask: u64| Masked { value, mask };
    let masked4 = |value: u32, mask: u32| Masked { value, mask };
    let qp = &mut world.a.qp;
    // Compares the low half only, swaps the top 16 bits only.
    qp.post(Wqe::<2>::masked_compare_swap_u64(
        result.local(0, 8),
        target.remote(0),
        masked(0x9999_9999_3333_4444, 0xffff_ffff),
        masked(0xabcd_0000_0000_0001, 0xffff_0000_0000_0000),
    ));
    // Two fields of 32 bits: the carry of the low one goes nowhere.
    qp.post(Wqe::<1>::masked_fetch_add_u64(
        result.local(8, 8),
        target.remote(0),
        0x0000_0001_ffff_ffff,
        0x8000_0000_8000_0000,
    ));
    // Two fields of 16 bits.
    qp.post(Wqe::<1>::masked_fetch_add_u32(
        result.local(16, 4),
        target.remote(8),
        0x0001_ff01,
        0x8000_8000,
    ));
    // Does not match under the mask: nothing changes.
    qp.post(
        Wqe::<1>::masked_compare_swap_u32(
            result.local(20, 4),
            target.remote(8),
            masked4(0x0000_0001, 0xf),
            masked4(0, u32::MAX),
        )
        .signalled(),
    );
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    assert_eq!(result.buffer.u64_at(0), 0x1111_2222_3333_4444);
    assert_eq!(result.buffer.u64_at(8), 0xabcd_2222_3333_4444);
    assert_eq!(target.buffer.u64_at(0), 0xabcd_2223_3333_4443);
    let u32_at =
        |bytes: Vec<u8>, at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(u32_at(result.buffer.bytes(), 16), 0x00ff_00ff);
    assert_eq!(u32_at(result.buffer.bytes(), 20), 0x0100_0000);
    assert_eq!(u32_at(target.buffer.bytes(), 8), 0x0100_0000);
    assert_eq!(u32_at(target.buffer.bytes(), 12), 0x5a5a_5a5a);
    world.check_canaries();
}

#[test]
fn nop_completes_in_order() {
    let mut world = World::new();
    let source = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    let write = world
        .a
        .qp
        .write(Wqe::<1>::write(source.all(), target.remote(0)).signalled());
    let nop = world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    let cqes = world.a.qp.send_cq.drain();
    let order: Vec<_> = cqes.iter().map(|cqe| cqe.tail().wqe_index()).collect();
    assert_eq!(order, [write, nop]);
    assert_eq!(cqes[1].tail().opcode(), Opcode::NOP);
}

#[test]
fn loopback_inside_one_hca() {
    use super::world::{Connection, connect};
    use warpbell_soft_hca::engine::{Transition, WireAddress};
    let mut world = World::new();
    world.reset();
    let own = world.a.qp.number;
    connect(
        &mut world.a,
        (WireAddress(0), own),
        1024,
        Connection::default(),
    );
    let data = pattern(9000, 8);
    let source = world.a.region(&data);
    let target = world.a.region(&[0; 9000]);
    let wqe = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
    world.a.qp.post(wqe);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), data);
    let again = world.a.engine.modify_queue_pair(own, Transition::Error);
    assert_eq!(again, Ok(()));
}

#[test]
fn inline_data_behind_segments_is_found_in_a_wqe_that_wraps() {
    use mlx5_wqe::{Octoword, segment};
    let mut world = World::new();
    let data = pattern(64, 1);
    let source = world.a.region(&data);
    let target = world.b.region(&[0; 64]);
    for _ in 0..15 {
        world.a.qp.post(Wqe::<1>::nop());
        world.settle();
    }
    let mut inline = [0xcc; 16];
    inline[..4].copy_from_slice(segment::InlineHeader::new(7).byte_count.as_ref());
    let segments = [
        segment::RemoteAddress::new(target.remote(0)).to_octoword(),
        segment::Data::new(source.local(0, 3)).to_octoword(),
        segment::Data::new(source.local(3, 3)).to_octoword(),
        // Here the second block starts, in the ring's first slot.
        segment::Data::new(source.local(6, 3)).to_octoword(),
        Octoword::from_bytes(inline),
    ];
    let wqe = Wqe::<2>::from_segments(Opcode::RDMA_WRITE, 0, 0, &segments, 0).unwrap();
    world.a.qp.post(wqe.signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    let written = target.buffer.bytes();
    assert_eq!(written[..9], data[..9]);
    assert_eq!(written[9..16], [0xcc; 7]);
    assert_eq!(written[16..], [0; 48]);
}
