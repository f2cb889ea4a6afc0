//! The DEVX commands of `mlx5-wqe` against the kernel's `linux/mlx5/mlx5_ifc.h`, bit by bit.

mod commands;

mod fields {
    use mlx5_wqe::prm::*;
    use proptest::prelude::*;
    use warpbell_proofs::facts::{Facts, assert_same};
    use warpbell_proofs::prm::{self, Aligned, theirs};

    /// Fields that the kernel's header has not, and the reserved bits in which they lie.
    const RESERVED: [(&str, &str, &str); 10] = [
        (
            "create_qp_in",
            "wq_umem_offset",
            "create_qp_in.reserved_at_800",
        ),
        ("create_qp_in", "wq_umem_id", "create_qp_in.reserved_at_800"),
        (
            "create_cq_in",
            "cq_umem_offset",
            "create_cq_in.reserved_at_280",
        ),
        ("create_cq_in", "cq_umem_id", "create_cq_in.reserved_at_280"),
        ("cqc", "dbr_umem_id", "cqc.reserved_at_20"),
        ("qpc", "dbr_umem_id", "qpc.reserved_at_684"),
        ("wq", "dbr_umem_id", "wq.reserved_at_140"),
        ("wq", "wq_umem_id", "wq.reserved_at_140"),
        ("qpc", "send_dbr_mode", "qpc.reserved_at_80"),
        (
            "cmd_hca_cap_2",
            "send_dbr_mode_no_dbr_ext",
            "cmd_hca_cap_2.reserved_at_260",
        ),
    ];

    fn all<R: Record>() -> impl Iterator<Item = Field> {
        R::HEAD.iter().chain(R::FIELDS).copied()
    }

    /// Size, offsets and widths, and that what the header has not lies in bits that it reserves.
    fn places<R: Record>() -> bool {
        let mut ours = Facts::from([("bytes".to_owned(), R::BYTES as u64)]);
        for field in all::<R>() {
            let (name, offset, width) = (field.name(), field.offset() as u64, field.width() as u64);
            let reserved = RESERVED
                .iter()
                .find(|(record, ours, _)| (*record, *ours) == (R::NAME, name));
            if let Some((_, _, run)) = reserved {
                let reserved = prm::reserved();
                let start = reserved[*run];
                let end = start + reserved[&format!("{run} size")];
                assert!(
                    start <= offset && offset + width <= end,
                    "{name} lies not in {run}"
                );
                assert!(!theirs::<R>().has(name));
            } else {
                ours.insert(name.to_owned(), offset);
                ours.insert(format!("{name} width"), width);
            }
        }
        assert_same(&ours, &theirs::<R>().facts());
        true
    }

    /// The record that random bytes are, written by us and field by field by `MLX5_SET`; and read back by
    /// `MLX5_GET`.
    fn bytes<R: Record>(random: &[u8; 4112], head: &[u8]) -> Result<(), TestCaseError> {
        let theirs = theirs::<R>();
        let mut input = *random;
        input[..head.len()].copy_from_slice(head);
        let record = R::read(&input).unwrap();
        let mut ours = Aligned([0; 4112]);
        record.write(&mut ours.0).unwrap();

        let mut built = Aligned([0; 4112]);
        for field in all::<R>() {
            let name = field.name();
            let value = field.get(&ours.0);
            if theirs.has(name) && theirs.set(name, &mut built, value) {
                prop_assert_eq!(theirs.get(name, &ours), Some(value), "{}.{}", R::NAME, name);
            } else if !theirs.has(name) {
                // Bits that the header has not.
                field.set(&mut built.0, value);
            } else {
                // A record within, compared by itself.
                let part = field.offset() / 8..(field.offset() + field.width()) / 8;
                built.0[part.clone()].copy_from_slice(&ours.0[part]);
            }
        }
        let (ours, built) = (&ours.0[..R::BYTES], &built.0[..R::BYTES]);
        prop_assert_eq!(ours, built, "{}", R::NAME);
        Ok(())
    }

    fn command<C: Command>(random: &[u8; 4112]) -> Result<(), TestCaseError> {
        bytes::<C>(random, &C::OPCODE.0.to_be_bytes())
    }

    fn answer<R: Record>(random: &[u8; 4112]) -> Result<(), TestCaseError> {
        // Status 0; the syndrome of a success means nothing, and we write 0.
        bytes::<R>(random, &[0; 8])
    }

    #[test]
    fn places_are_the_headers() {
        let plain = places::<AddressPath>()
            && places::<QpContext>()
            && places::<CqContext>()
            && places::<WorkQueue>()
            && places::<RmpContext>()
            && places::<HcaCapabilities>()
            && places::<HcaCapabilities2>()
            && places::<AtomicCapabilities>()
            && places::<RoceCapabilities>()
            && places::<Mtt>()
            && places::<UmemContext>();
        let commands = places::<QueryHcaCap>()
            && places::<CreateCq>()
            && places::<DestroyCq>()
            && places::<CreateRmp>()
            && places::<CreateQp>()
            && places::<RstToInit>()
            && places::<InitToRtr>()
            && places::<RtrToRts>()
            && places::<ToError>()
            && places::<ToReset>()
            && places::<QueryQp>()
            && places::<DestroyQp>()
            && places::<CreateUmem>()
            && places::<DestroyUmem>()
            && places::<AllocUar>()
            && places::<AllocQCounter>()
            && places::<QueryQCounter>()
            && places::<DeallocUar>();
        let answers = places::<QueryHcaCapAnswer>()
            && places::<CreateCqAnswer>()
            && places::<CreateRmpAnswer>()
            && places::<CreateQpAnswer>()
            && places::<ModifyQpAnswer>()
            && places::<QueryQpAnswer>()
            && places::<CreateUmemAnswer>()
            && places::<AllocUarAnswer>()
            && places::<AllocQCounterAnswer>()
            && places::<QueryQCounterAnswer>()
            && places::<Done>();
        assert!(plain && commands && answers);
        assert_eq!(
            prm::sizes().len(),
            40,
            "the header was asked for a record that is not compared"
        );
    }

    /// Any bytes, as many as the longest record has.
    fn random() -> impl Strategy<Value = Box<[u8; 4112]>> {
        let words = prop::collection::vec(any::<u64>(), 4112 / 8);
        words.prop_map(|words| {
            let mut bytes = Box::new([0; 4112]);
            for (word, place) in words.iter().zip(bytes.as_chunks_mut().0) {
                *place = word.to_ne_bytes();
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn plain_records(random in random()) {
            bytes::<AddressPath>(&random, &[])?;
            bytes::<QpContext>(&random, &[])?;
            bytes::<CqContext>(&random, &[])?;
            bytes::<WorkQueue>(&random, &[])?;
            bytes::<RmpContext>(&random, &[])?;
            bytes::<HcaCapabilities>(&random, &[])?;
            bytes::<HcaCapabilities2>(&random, &[])?;
            bytes::<AtomicCapabilities>(&random, &[])?;
            bytes::<RoceCapabilities>(&random, &[])?;
            bytes::<Mtt>(&random, &[])?;
            bytes::<UmemContext>(&random, &[])?;
        }

        #[test]
        fn commands(random in random()) {
            command::<QueryHcaCap>(&random)?;
            command::<CreateCq>(&random)?;
            command::<DestroyCq>(&random)?;
            command::<CreateRmp>(&random)?;
            command::<CreateQp>(&random)?;
            command::<RstToInit>(&random)?;
            command::<InitToRtr>(&random)?;
            command::<RtrToRts>(&random)?;
            command::<ToError>(&random)?;
            command::<ToReset>(&random)?;
            command::<QueryQp>(&random)?;
            command::<DestroyQp>(&random)?;
            command::<CreateUmem>(&random)?;
            command::<DestroyUmem>(&random)?;
            command::<AllocUar>(&random)?;
            command::<AllocQCounter>(&random)?;
            command::<QueryQCounter>(&random)?;
            command::<DeallocUar>(&random)?;
        }

        #[test]
        fn answers(random in random()) {
            answer::<QueryHcaCapAnswer>(&random)?;
            answer::<CreateCqAnswer>(&random)?;
            answer::<CreateRmpAnswer>(&random)?;
            answer::<CreateQpAnswer>(&random)?;
            answer::<ModifyQpAnswer>(&random)?;
            answer::<QueryQpAnswer>(&random)?;
            answer::<CreateUmemAnswer>(&random)?;
            answer::<AllocUarAnswer>(&random)?;
            answer::<AllocQCounterAnswer>(&random)?;
            answer::<QueryQCounterAnswer>(&random)?;
            answer::<Done>(&random)?;
        }
    }
}
