//! Which steps run, in which order, and with which command lines.

use serde_json::json;

use super::{Folder, bare, diagnosis, finding, step, verdicts};

const PASSED: &str = "passed";
const SKIPPED: &str = "skipped";

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

#[test]
fn each_step_goes_one_step_further_on_the_card_that_is_nearest() {
    let folder = Folder::new();
    let (status, document) =
        folder.document(&["--quick", "--node", "me@node2", "--gid-index", "3"]);
    assert_eq!(status, Some(0));
    assert_eq!(verdicts(&document), [PASSED; 9]);
    assert_eq!(document["verdict"], PASSED);
    assert_eq!(
        document["nic"],
        json!({"name": "mlx5_1", "software": false})
    );
    let (path, host) = (folder.path(), host_name());
    let launch = format!(
        "warpbell-launch -n 2 --hosts {host},me@node2 {}/demo --quick",
        path.display()
    );
    assert_eq!(
        folder.log(),
        [
            "warpbell-doctor --json".to_owned(),
            "demo --quick --nic mlx5_1 --gid-index 3".into(),
            format!("{launch} --nic mlx5_1 --gid-index 3"),
            "demo --quick --on gpu --nic mlx5_1 --gid-index 3 --host-memory".into(),
            "demo --quick --on gpu --nic mlx5_1 --gid-index 3".into(),
            format!("{launch} --on gpu --nic mlx5_1 --gid-index 3"),
            "suite --tests verbs,shared,errors -- --on gpu --nic mlx5_1 --gid-index 3".into(),
            "bench pingpong --sizes 8,4K --rounds 500 --on gpu --nic mlx5_1 --gid-index 3".into(),
            "bench bandwidth --verbs write,read --from 4K --to 64K --repetitions 2 --on gpu --nic mlx5_1 --gid-index 3"
                .into(),
        ]
    );
}

#[test]
fn software_nics_take_the_place_of_cards() {
    let folder = Folder::new();
    let options = ["--nic", "soft-host", "--gpu", "2", "--node", "node2"];
    let more = ["--address", "10.0.0.1", "--rsh", "/bin/remote"];
    let (status, document) = folder.document(&[&options[..], &more].concat());
    assert_eq!((status, verdicts(&document)), (Some(0), vec![PASSED; 9]));
    assert_eq!(
        document["nic"],
        json!({"name": "software", "software": true})
    );
    let (path, host) = (folder.path(), host_name());
    let launch = format!(
        "warpbell-launch -n 2 --hosts {host},node2 --address 10.0.0.1 --rsh /bin/remote {}/demo",
        path.display()
    );
    assert_eq!(
        folder.log(),
        [
            "warpbell-doctor --json".to_owned(),
            "demo --nic soft".into(),
            format!("{launch} --nic soft"),
            "demo --on gpu --gpu 2 --nic soft-host".into(),
            "demo --on gpu --gpu 2 --nic soft-gpu".into(),
            format!("{launch} --on gpu --gpu 2 --nic soft-host"),
            "suite -- --on gpu --gpu 2 --nic soft-gpu".into(),
            "bench pingpong --on gpu --gpu 2 --nic soft-gpu".into(),
            "bench bandwidth --verbs write,read --from 64 --on gpu --gpu 2 --nic soft-gpu".into(),
        ]
    );
}

#[test]
fn without_gpu_and_second_node_their_steps_are_skipped_and_say_why() {
    let folder = Folder::new();
    folder.doctor(&bare());
    let (status, document) = folder.document(&[]);
    assert_eq!(status, Some(0));
    assert_eq!(document["nic"]["software"], true);
    for (name, why) in [
        (
            "doctor",
            "it finds no GPU, and the NIC is software, so nothing is needed",
        ),
        ("two-nodes", "no second node was named; add --node HOST"),
        ("gpu-host-memory", "the doctor finds no GPU on this machine"),
        ("gpu-memory", "the doctor finds no GPU on this machine"),
        ("two-gpus", "no second node was named; add --node HOST"),
    ] {
        let found = step(&document, name);
        assert_eq!(
            (&found["verdict"], &found["why"]),
            (&json!(SKIPPED), &json!(why))
        );
    }
    for name in ["cpu", "suite", "latency", "bandwidth"] {
        assert_eq!(step(&document, name)["verdict"], PASSED, "{name}");
    }
    assert_eq!(folder.log()[2], "suite -- --nic soft");
    let (_, text) = folder.text(&[]);
    let (_, open) = text.split_once("Not proven:").unwrap();
    assert!(open.contains("GPUDirect RDMA"), "{text}");
    assert!(
        text.contains("The NIC of all steps: software (the doctor finds no card;"),
        "{text}"
    );
}

#[test]
fn the_card_that_is_ready_goes_before_the_one_that_is_near() {
    let folder = Folder::new();
    let mut report = diagnosis();
    report["pairs"][1]["ready"] = false.into();
    folder.doctor(&report);
    assert_eq!(folder.document(&[]).1["nic"]["name"], "mlx5_0");
    // Without a GPU it is the first that the right driver has.
    report["pairs"] = json!([]);
    report["findings"] = json!([
        finding("gpu", "missing", None),
        finding("nic-driver", "missing", Some("rxe0")),
        finding("nic-driver", "ok", Some("mlx5_7")),
    ]);
    folder.doctor(&report);
    assert_eq!(folder.document(&[]).1["nic"]["name"], "mlx5_7");
    assert_eq!(
        folder.document(&["--nic", "mlx5_0:2"]).1["nic"]["name"],
        "mlx5_0:2"
    );
}

#[test]
fn steps_that_are_left_out_are_no_premises() {
    let folder = Folder::new();
    let (status, document) = folder.document(&["--steps", "gpu-memory,suite", "--nic", "mlx5_0"]);
    assert_eq!(status, Some(0));
    assert_eq!(
        folder.log(),
        [
            "demo --on gpu --nic mlx5_0",
            "suite -- --on gpu --nic mlx5_0"
        ]
    );
    assert_eq!(document["steps"].as_array().unwrap().len(), 2);
    let (_, text) = folder.text(&["--steps", "suite,cpu"]);
    assert!(
        text.contains("\n1 of 2  cpu\n") && text.contains("\n2 of 2  suite\n"),
        "{text}"
    );
}

#[test]
fn benchmarks_and_suite_run_at_the_best_place_that_has_passed() {
    let folder = Folder::new();
    folder.script(
        "demo",
        "case \"$*\" in *--host-memory) ;; *gpu*) exit 1 ;; esac; echo 'every byte verified'",
    );
    let (status, document) = folder.document(&[]);
    assert_eq!(status, Some(1));
    assert_eq!(step(&document, "gpu-memory")["verdict"], "failed");
    let log = folder.log();
    assert_eq!(
        log[4], "suite -- --on gpu --nic mlx5_1 --host-memory",
        "{log:?}"
    );
    assert!(
        log[5..].iter().all(|line| line.ends_with("--host-memory")),
        "{log:?}"
    );
}

/// As under `cargo xtask flash`, which starts each program as a rank.
#[test]
fn programs_of_a_bring_up_that_is_a_rank_are_none() {
    let folder = Folder::new();
    let names = [
        "RANK",
        "SIZE",
        "LOCAL_RANK",
        "ROOT",
        "BIND",
        "SECRET",
        "LAUNCHER",
        "WIRE",
    ];
    let shown = names.map(|name| format!("$WARPBELL_{name}")).join(":");
    folder.script("demo", &format!("echo \"{shown} every byte verified\""));
    let mut command = folder.command(&["--json", "--steps", "cpu"]);
    for name in names {
        command.env(format!("WARPBELL_{name}"), "1");
    }
    let (status, stdout, _) = super::output(&mut command);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    // Users choose wires.
    let expected = "::::::hand:1 every byte verified";
    assert_eq!(status, Some(0));
    assert_eq!(step(&document, "cpu")["output"], json!([expected]));
}

/// A suite without what it needs says so, and succeeds.
#[test]
fn a_program_that_skips_all_has_proven_nothing() {
    let folder = Folder::new();
    folder.script("suite", "echo 'Skipped: every test was skipped'");
    let (status, document) = folder.document(&[]);
    let suite = step(&document, "suite");
    assert_eq!(status, Some(0));
    assert_eq!(
        (&suite["verdict"], &suite["why"]),
        (&json!(SKIPPED), &json!("every test was skipped"))
    );
}

/// The question of all steps, and what they answer.
#[test]
fn the_answer_says_how_far_gpu_driven_networking_works() {
    let failing = |pattern: &str| {
        format!("case \"$*\" in {pattern}) exit 1 ;; esac; echo 'every byte verified'")
    };
    let node = ["--node", "node2"];
    for (nic, demo, more, answer) in [
        (
            "mlx5_0",
            failing("nothing"),
            &node[..],
            "GPU-driven networking works here, also between two nodes: kernels on the GPU drive mlx5_0, with queues and \
             data in the GPU's memory.",
        ),
        (
            "mlx5_0",
            failing("nothing"),
            &[],
            "GPU-driven networking works here: kernels on the GPU drive mlx5_0, with queues and data in the GPU's memory.",
        ),
        (
            "mlx5_0",
            failing("'--on gpu --nic mlx5_0'"),
            &node,
            "GPU-driven networking works here with queues and data in host memory: kernels on the GPU drive mlx5_0. With \
             both in the GPU's memory it is not proven.",
        ),
        (
            "mlx5_0",
            failing("*gpu*"),
            &[],
            "GPU-driven networking is not proven here. The step gpu-host-memory: it ended with status 1.",
        ),
        (
            "mlx5_0",
            "echo 'error: no card'; exit 1".to_owned(),
            &[],
            "GPU-driven networking is not proven here. The step cpu: no card.",
        ),
        (
            "soft",
            failing("nothing"),
            &[],
            "Kernels on the GPU drive a software NIC. The NIC is software, so nothing is proven of a card.",
        ),
        (
            "soft",
            failing("*gpu*"),
            &[],
            "GPU-driven networking is not proven here. The step gpu-host-memory: it ended with status 1. The NIC is \
             software, so nothing is proven of a card.",
        ),
    ] {
        let folder = Folder::new();
        folder.script("demo", &demo);
        let (_, document) = folder.document(&[&["--nic", nic][..], more].concat());
        assert_eq!(document["answer"], answer);
    }
    let (_, document) = Folder::new().document(&["--steps", "suite"]);
    assert_eq!(
        document["answer"],
        "GPU-driven networking is not proven here. The NIC is software, so nothing is proven of a card."
    );
}
