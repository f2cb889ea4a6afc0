//! Any bytes decode, and each is in a field.

use clap::ValueEnum;
use proptest::collection::vec;
use proptest::prelude::*;
use warpbell_command::decode::{Context, Kind, Report, Service, decode};
use warpbell_command::{input, text};

/// How often each byte is in a field; fields of some bits of the same bytes count once.
fn covered(report: &Report) -> Vec<u32> {
    let mut count = vec![0; report.bytes];
    for structure in &report.structures {
        let mut before = None;
        for field in &structure.fields {
            let place = (field.offset, field.bytes);
            if before == Some(place) && field.bits.is_some() {
                continue;
            }
            before = Some(place);
            for at in 0..field.bytes {
                // A WQE that wraps goes on at the ring's first byte.
                count[(field.offset + at) % report.bytes] += 1;
            }
        }
    }
    count
}

fn contexts() -> impl Strategy<Value = Context> {
    let service = prop_oneof![Just(Service::Rc), Just(Service::Uc), Just(Service::Ud)];
    let stride = prop_oneof![Just(16_usize), Just(64)];
    let log_size = proptest::option::of(0..5_u8);
    (
        proptest::option::of(any::<u32>()),
        log_size,
        service,
        stride,
    )
        .prop_map(|(index, log_size, service, stride)| Context {
            index,
            log_size,
            transport: service.into(),
            stride,
            ..Context::default()
        })
}

/// Bytes like those of queues: any, or the control segments of WQEs before any.
fn queues() -> impl Strategy<Value = Vec<u8>> {
    let block = (any::<u8>(), 0..8_u8, 0..12_u8, vec(any::<u8>(), 56)).prop_map(
        |(opcode, index, ds, rest)| {
            let head = [0, 0, index, opcode & 0x3f, 0, 0, 9, ds];
            [&head[..], &rest].concat()
        },
    );
    let blocks = vec(block, 1..9).prop_map(|blocks| blocks.concat());
    prop_oneof![vec(any::<u8>(), 0..600), blocks]
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: 400,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_byte_is_accounted_for(
        bytes in queues(),
        kind in proptest::sample::select(Kind::value_variants()),
        context in contexts(),
    ) {
        for kind in [Some(kind), None] {
            let report = decode(&bytes, kind, &context);
            let covered = covered(&report);
            let missing = covered.iter().position(|count| *count == 0);
            prop_assert_eq!(missing, None, "{:?}: {:#?}", kind, report.structures);
            // Records of commands have fields of bits that begin and end within bytes of others.
            if !matches!(report.kind, Some(Kind::Devx | Kind::DevxAnswer)) {
                let twice = covered.iter().position(|count| *count > 1);
                prop_assert_eq!(twice, None, "{:?}: {:#?}", kind, report.structures);
            }
            for finding in report.structures.iter().flat_map(|found| &found.findings) {
                prop_assert!(finding.offset <= bytes.len().saturating_sub(1), "{:?}", finding);
                prop_assert!(!finding.text.is_empty());
            }
            // The text fits a terminal, whatever the bytes are.
            for line in text::page(&report, 80).lines() {
                prop_assert!(console::measure_text_width(line) <= 80, "{}", line);
            }
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }

    /// What the decoder of `mlx5-wqe`, and so the software NIC, refuses has a finding.
    #[test]
    fn what_the_nic_refuses_is_explained(bytes in queues(), context in contexts()) {
        use mlx5_wqe::segment::Control;
        use zerocopy::FromBytes;

        let context = Context { log_size: None, index: None, ..context };
        let Ok((control, _)) = Control::read_from_prefix(&bytes) else { return Ok(()) };
        let refused = mlx5_wqe::decode::decode_for(context.transport, &bytes, control.index(), control.qpn());
        let report = decode(&bytes, Some(Kind::Wqe), &context);
        let first = &report.structures[0];
        if refused.is_err() && !first.title.contains("unused") {
            prop_assert!(!first.findings.is_empty(), "{:?}: {:#?}", refused, first);
        }
    }

    /// Hex text of any bytes is those bytes, as plain digits and as programs dump them.
    #[test]
    fn dumps_are_read_back(bytes in vec(any::<u8>(), 1..100), split in 1..8_usize) {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain = hex.chunks(split).map(|word| word.concat()).collect::<Vec<_>>().join(" ");
        let lines = || hex.chunks(16).enumerate();
        let mut xxd = String::new();
        let mut canonical = String::new();
        let mut od = String::new();
        let mut octal = String::new();
        for (number, line) in lines() {
            let at = number * 16;
            let pairs: Vec<_> = line.chunks(2).map(|pair| pair.concat()).collect();
            xxd += &format!("{at:08x}: {:<39}  {}\n", pairs.join(" "), "ab 01 |.".repeat(2));
            canonical += &format!("{at:08x}  {:<48}  |{}|\n", line.join(" "), "00 11 ..");
            od += &format!("{at:06x} {}\n", line.join(" "));
            octal += &format!("{at:07o} {}\n", line.join(" "));
        }
        canonical += &format!("{:08x}\n", bytes.len());
        octal += &format!("{:07o}\n", bytes.len());
        od += &format!("{:06x}\n", bytes.len());
        for (name, text) in [("plain", plain), ("xxd", xxd), ("hexdump -C", canonical), ("od -A x -t x1", od), ("od -t x1", octal)] {
            let input = input::parse(text.clone().into_bytes()).unwrap();
            prop_assert_eq!(&input.bytes, &bytes, "{}: {}", name, text);
            prop_assert_eq!(&input.findings, &[], "{}", name);
        }
    }
}
