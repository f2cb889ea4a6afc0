//! What the models do, against times that follow from their parameters by hand.

use warpbell_cluster::driver::Driver;
use warpbell_cluster::generate::{self, Algorithm, Reduction};
use warpbell_cluster::goal::Schedule;
use warpbell_cluster::parameters::{self, Parameters};
use warpbell_cluster::simulate::{self, Cluster, Error, Outcome, run};
use warpbell_cluster::topology::{self, Topology};

fn cluster(topology: Topology, parameters: Parameters, driver: Driver) -> Cluster {
    Cluster {
        topology,
        parameters,
        driver,
        seed: 1,
    }
}

/// A cluster where only links cost: 100 Gbit/s, 80 ps a byte, and 100 ns each.
pub(crate) fn bare() -> Parameters {
    let mut parameters = Parameters::default();
    for row in parameters::ROWS {
        if row.range.0 == 0.0 {
            parameters.set(row.name, 0.0).unwrap();
        }
    }
    parameters.set("pcie_rate", 1e5).unwrap();
    parameters
}

fn simulated(
    topology: Topology,
    parameters: Parameters,
    driver: Driver,
    schedule: Schedule,
) -> Outcome {
    run(
        &cluster(topology, parameters, driver),
        schedule.check().unwrap(),
    )
    .unwrap()
}

fn nanoseconds(time: simulate::Time) -> f64 {
    time.picoseconds() as f64 / 1e3
}

/// One message over one, three and five switches: its bytes once, and each link's and switch's latency.
#[test]
fn a_message_alone_takes_its_bytes_and_its_latencies() {
    for (to, switches) in [(1, 1), (2, 3), (15, 5)] {
        let text = format!(
            "num_ranks 16\nrank 0 {{ send 8192b to {to} tag 0 }}\nrank {to} {{ recv 8192b from 0 tag 0 }}"
        );
        let mut parameters = bare();
        parameters.set("switch_latency", 50.0).unwrap();
        let tree = Topology::fat_tree(16).unwrap();
        let outcome = simulated(tree, parameters, Driver::Kernel, text.parse().unwrap());
        let expected = 8192.0 * 0.08 + f64::from(switches + 1) * 100.0 + f64::from(switches) * 50.0;
        let end = nanoseconds(outcome.end());
        assert!((end - expected).abs() < 2.0, "{end} for {expected}");
    }
}

/// Messages of three ranks to one share its link: the last ends after all bytes.
#[test]
fn messages_to_one_node_wait_for_each_other() {
    let text = "num_ranks 4
        rank 0 { recv 8192b from 1 tag 0; recv 8192b from 2 tag 0; recv 8192b from 3 tag 0 }
        rank 1 { send 8192b to 0 tag 0 }
        rank 2 { send 8192b to 0 tag 0 }
        rank 3 { send 8192b to 0 tag 0 }";
    let outcome = simulated(
        Topology::star(4),
        bare(),
        Driver::Kernel,
        text.parse().unwrap(),
    );
    let end = nanoseconds(outcome.end());
    assert!((end - (3.0 * 655.36 + 200.0)).abs() < 2.0, "{end}");
}

/// `calc`s of one stream run one after the other, and those of two side by side; `irequires` waits for a start only.
#[test]
fn streams_run_side_by_side() {
    for (text, expected) in [
        ("calc 100; calc 200", 300.0),
        ("calc 100; calc 200 cpu 1", 200.0),
        ("a: calc 100; b: calc 200 cpu 1; b requires a", 300.0),
        ("a: calc 100; b: calc 200 cpu 1; b irequires a", 200.0),
        ("", 0.0),
    ] {
        let schedule = format!("num_ranks 1\nrank 0 {{ {text} }}").parse().unwrap();
        let outcome = simulated(Topology::star(1), bare(), Driver::Kernel, schedule);
        let end = nanoseconds(outcome.end());
        assert!((end - expected).abs() < 0.1, "{text}: {end}");
    }
}

/// The put of paper 003, part by part. All drivers launch one kernel; only those at a kernel's boundary end it before
/// the message goes.
#[test]
fn a_put_is_the_sum_of_its_parts() {
    let p = Parameters::default();
    let bus = |bytes: f64| bytes * 8.0 / 256.0;
    let network = {
        let wire = (8.0 + 82.0) * 0.08;
        2.0 * 150.0 + 2.0 * 275.0 + wire + 2.0 * 100.0 + 90.0 + 275.0
    };
    let doorbell = 275.0 + bus(8.0 + 24.0);
    let fetch = 2.0 * 275.0 + bus(64.0 + 20.0);
    for (driver, expected) in [
        // No launch; and a kernel at the target sees its task, which the host would have to be told of.
        (Driver::Cpu, 26.0 + doorbell + fetch + network + 100.0),
        (Driver::Xtq, 3000.0 + 26.0 + doorbell + fetch + network),
        (
            Driver::CommandProcessor,
            1500.0 + 376.0 + 182.0 + 250.0 + doorbell + fetch + network + 182.0,
        ),
        // Nothing here waits for a message.
        (
            Driver::Chained,
            1500.0 + 701.0 + doorbell + 50.0 + network + 182.0,
        ),
        (
            Driver::Host,
            3000.0 + 26.0 + doorbell + fetch + network + 100.0,
        ),
        (
            Driver::Gds,
            1500.0 + 500.0 + 500.0 + doorbell + fetch + network + 500.0,
        ),
        (
            Driver::Proxy,
            1500.0
                + 701.0
                + 275.0
                + bus(64.0 + 24.0)
                + 100.0
                + 125.0
                + doorbell
                + fetch
                + network
                + 182.0,
        ),
        (
            Driver::Triggered,
            1500.0 + 701.0 + doorbell + 50.0 + network + 182.0,
        ),
        (
            Driver::Kernel,
            1500.0 + 1313.0 + doorbell + fetch + network + 182.0,
        ),
    ] {
        let outcome = simulated(
            Topology::star(2),
            p.clone(),
            driver,
            generate::put(8).unwrap(),
        );
        let end = nanoseconds(outcome.ranks[1].end);
        // The engine plans no event in its own instant, and each part is rounded.
        assert!(
            (end - expected).abs() < 0.1,
            "{driver:?}: {end} for {expected}"
        );
    }
}

/// A message starts a task, which answers. The host sees the message (100 ns) and launches (1,500 ns). With XTQ the GPU's
/// front end sees the command (182 ns) and launches (500 ns). An answer without a task is the host's in both.
#[test]
fn xtq_launches_at_the_target() {
    let end = |driver, then: &str| {
        let text = format!(
            "num_ranks 2\nrank 0 {{ send 8b to 1; recv 8b from 1 }}
            rank 1 {{ got: recv 8b from 0; {then}answer: send 8b to 0; answer requires last }}"
        );
        let text = match then {
            "" => text.replace("last", "got"),
            _ => text,
        };
        let (star, p) = (Topology::star(2), Parameters::default());
        nanoseconds(simulated(star, p, driver, text.parse().unwrap()).ranks[1].end)
    };
    let saved = |then| end(Driver::Host, then) - end(Driver::Xtq, then);
    let task = saved("last: calc 1000; last requires got; ");
    assert!((task - (1600.0 - 682.0)).abs() < 0.1, "{task}");
    let none = saved("");
    assert!(none.abs() < 0.1, "{none}");
}

/// Without a GPU, computing takes as many times as long as memory is slower: 4,800 GB/s beside 307.2.
#[test]
fn a_cpu_computes_as_fast_as_its_memory() {
    let schedule = "num_ranks 1\nrank 0 { calc 1000 }".parse().unwrap();
    let (star, p) = (Topology::star(1), Parameters::default());
    let end = nanoseconds(simulated(star, p, Driver::Cpu, schedule).end());
    assert!((end - 15_625.0).abs() < 0.1, "{end}");
}

/// A message goes from rank to rank by NICs alone: WAIT, SEND_EN, and the fetch of the WQE and the payload. The first
/// rank triggers it, and the last one polls. No rank between has a doorbell.
#[test]
fn a_chain_takes_its_closed_form() {
    let bus = |bytes: f64| bytes * 8.0 / 256.0;
    let hop = {
        let wire = (8.0 + 82.0) * 0.08;
        2.0 * 150.0 + 2.0 * 275.0 + wire + 2.0 * 100.0 + 90.0
    };
    let trigger = 701.0 + 275.0 + bus(8.0 + 24.0) + 50.0;
    let chain = 100.0 + 2.0 * 275.0 + bus(64.0 + 20.0);
    for ranks in [2, 3, 8] {
        let last = ranks - 1;
        let between = (1..last).map(|rank| {
            let (from, to) = (rank - 1, rank + 1);
            format!("rank {rank} {{ a: recv 8b from {from}; b: send 8b to {to}; b requires a }}\n")
        });
        let text = format!(
            "num_ranks {ranks}\nrank 0 {{ send 8b to 1 }}\n{}rank {last} {{ recv 8b from {} }}",
            between.collect::<String>(),
            last - 1
        );
        let star = Topology::star(ranks);
        let p = Parameters::default();
        let outcome = simulated(star, p, Driver::Chained, text.parse().unwrap());
        let hops = last as f64;
        let expected = 1500.0 + trigger + hops * hop + (hops - 1.0) * chain + 275.0 + 182.0;
        let end = nanoseconds(outcome.end());
        assert!((end - expected).abs() < 0.1, "{end} for {expected}");
        for report in &outcome.ranks[1..last] {
            // The message and its flag; the WQE and the payload, each with a request.
            assert_eq!(report.packets, 2 + 2 + 2);
        }
    }
}

/// In the second half of a ring, sums only go round. Of its N - 1 sends the first waits for an addition; NICs relay the
/// others. Each relay saves the way to the kernel and back.
#[test]
fn nics_hand_the_sums_of_a_ring_on() {
    let bus = |bytes: f64| bytes * 8.0 / 256.0;
    for ranks in [2, 4, 8] {
        let reduction = Reduction {
            algorithm: Algorithm::Ring,
            bytes: 8 * u64::from(ranks),
            chunk: 8,
            memory: 4800.0,
        };
        let schedule = generate::all_reduce(ranks, &reduction).unwrap();
        let end = |driver| {
            let (star, p) = (Topology::star(ranks as usize), Parameters::default());
            nanoseconds(simulated(star, p, driver, schedule.clone()).end())
        };
        let kernel = 275.0 + 182.0 + 701.0 + 275.0 + bus(8.0 + 24.0) + 50.0;
        let chain = 100.0 + 2.0 * 275.0 + bus(64.0 + 20.0);
        let saved = end(Driver::Triggered) - end(Driver::Chained);
        let expected = f64::from(ranks - 2) * (kernel - chain);
        assert!((saved - expected).abs() < 0.1, "{saved} for {expected}");
    }
}

/// What waits for anything but messages stays with the kernel: a send behind a `calc`, behind a receive that waits for a
/// `calc`, or one that must not start before another operation.
#[test]
fn nics_relay_only_what_needs_nothing_but_messages() {
    let relays = |text: &str| {
        let text =
            format!("num_ranks 2\nrank 0 {{ {text} }}\nrank 1 {{ send 8b to 0; recv 8b from 0 }}");
        let program = text.parse::<Schedule>().unwrap().check().unwrap();
        program.ranks[0].relays.contains(&true)
    };
    let message = "w: calc 1; r: recv 8b from 1; s: send 8b to 1; ";
    for (orders, expected) in [
        ("s requires r", true),
        ("", false),
        ("s requires r; s requires w", false),
        ("s requires r; r requires w", false),
        ("s requires r; s irequires w", false),
        ("s requires w", false),
    ] {
        assert_eq!(relays(&format!("{message}{orders}")), expected, "{orders}");
    }
}

/// Between hosts a WRITE of 64 bytes takes 2.38 µs, from its post until it is seen. Paper 002 has 1 to 2 µs (section
/// 3.1). Without the reads of WQE and payload, 0.55 µs each, the model would be in that range.
#[test]
fn a_small_write_between_hosts_takes_longer_than_the_paper_measured() {
    let text = "num_ranks 2\nrank 0 { send 64b to 1 tag 0 }\nrank 1 { recv 64b from 0 tag 0 }";
    let outcome = simulated(
        Topology::star(2),
        Parameters::default(),
        Driver::Host,
        text.parse().unwrap(),
    );
    let end = outcome.end().microseconds();
    assert!((end - 2.38).abs() < 0.01, "{end}");
    let reads = 4.0 * Parameters::default().pcie_latency / 1e3;
    assert!(end > 2.0 && (1.0..2.0).contains(&(end - reads)), "{end}");
}

/// An empty message waits for no payload. 8 bytes take two ways across the bus more (550 ns), and a nanosecond for bytes
/// and packets.
#[test]
fn an_empty_message_reads_nothing() {
    let end = |bytes| {
        let schedule = generate::put(bytes).unwrap();
        let p = Parameters::default();
        let outcome = simulated(Topology::star(2), p, Driver::Kernel, schedule);
        nanoseconds(outcome.ranks[1].end)
    };
    let more = end(8) - end(0);
    assert!((550.0..552.0).contains(&more), "{more}");
}

/// What two posts of one node cost each other: a proxy's thread carries the second command 125 ns after the first.
#[test]
fn a_proxy_carries_one_command_after_the_other() {
    let end = |posts: usize| {
        let text = format!(
            "num_ranks 2\nrank 0 {{ {} }}\nrank 1 {{ {} }}",
            "send 8b to 1; ".repeat(posts),
            "recv 8b from 0; ".repeat(posts)
        );
        let p = Parameters::default();
        let outcome = simulated(Topology::star(2), p, Driver::Proxy, text.parse().unwrap());
        nanoseconds(outcome.ranks[1].end)
    };
    let gap = (end(9) - end(1)) / 8.0;
    assert!((gap - 125.0).abs() < 0.1, "{gap}");
}

/// Packets on the bus are those of the closed form. For 4,096 bytes the sender has 8 reads and 8 completions, and the
/// receiver 8 writes. Beside those there are the doorbell, the WQE (a read and its completion) and the flag.
#[test]
fn packets_are_counted() {
    let count = |driver| {
        let outcome = simulated(
            Topology::star(2),
            Parameters::default(),
            driver,
            generate::put(4096).unwrap(),
        );
        (outcome.ranks[0].packets, outcome.ranks[1].packets)
    };
    assert_eq!(count(Driver::Kernel), (16 + 3, 8 + 1));
    assert_eq!(count(Driver::Host), (16 + 3, 8 + 1));
    assert_eq!(count(Driver::Triggered), (16 + 1, 8 + 1));
    assert_eq!(count(Driver::Proxy), (16 + 4, 8 + 1));
}

/// A ring where only links cost: 2 (N - 1) steps of a part's bytes and of two links (Thakur and others 2005).
#[test]
fn a_ring_takes_its_closed_form() {
    for ranks in [2, 4, 8, 16] {
        let reduction = Reduction {
            algorithm: Algorithm::Ring,
            bytes: 1 << 20,
            chunk: 1 << 20,
            memory: 1e9,
        };
        let schedule = generate::all_reduce(ranks, &reduction).unwrap();
        let outcome = simulated(
            Topology::star(ranks as usize),
            bare(),
            Driver::Kernel,
            schedule,
        );
        let part = f64::from(1 << 20) / f64::from(ranks);
        let expected = f64::from(2 * (ranks - 1)) * (part * 0.08 + 200.0);
        let end = nanoseconds(outcome.end());
        assert!((end / expected - 1.0).abs() < 0.001, "{end} for {expected}");
    }
}

/// The same seed gives the same reports, and another seed other ways.
#[test]
fn the_same_seed_gives_the_same_result() {
    let program = generate::all_to_all(64, 10_000).unwrap().check().unwrap();
    let outcome = |seed| {
        let tree = Topology::fat_tree(64).unwrap();
        let cluster = Cluster {
            seed,
            ..cluster(tree, Parameters::default(), Driver::Kernel)
        };
        run(&cluster, program.clone()).unwrap()
    };
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
    assert_eq!(outcome(1).messages(), 64 * 63);
}

#[test]
fn bad_clusters_are_named() {
    let program = || generate::all_to_all(16, 8).unwrap().check().unwrap();
    let error = |topology, parameters| {
        run(&cluster(topology, parameters, Driver::Host), program()).unwrap_err()
    };
    let few = error(Topology::star(15), Parameters::default());
    assert!(matches!(
        few,
        Error::Topology(topology::Error::TooFewHosts {
            ranks: 16,
            hosts: 15
        })
    ));
    // Time ends after 213 days: during 20,000 calcs of 1,000 s, and so for a message behind them.
    let calcs = "calc 1000000000000; ".repeat(20_000);
    for (first, second) in [
        ("", ""),
        (
            "last: calc 1; s: send 8b to 1; s requires last",
            "recv 8b from 0",
        ),
    ] {
        let text = format!("num_ranks 2\nrank 0 {{ {calcs}{first} }}\nrank 1 {{ {second} }}");
        let schedule: Schedule = text.parse().unwrap();
        let cluster = cluster(Topology::star(2), Parameters::default(), Driver::Host);
        let long = run(&cluster, schedule.check().unwrap()).unwrap_err();
        assert!(matches!(long, Error::TooLong(0)), "{long}");
    }
    let mut tree = Topology::fat_tree(16).unwrap();
    tree.cut(0, 8).unwrap();
    tree.cut(0, 9).unwrap();
    let no = error(tree, Parameters::default());
    assert!(
        matches!(
            no,
            Error::Topology(topology::Error::NoRoute { from: 0, to: 2 })
        ),
        "{no}"
    );
    let parameters = Parameters {
        link_rate: -1.0,
        ..Parameters::default()
    };
    let range = error(Topology::star(16), parameters);
    assert!(matches!(
        range,
        Error::Parameters(parameters::Error::OutOfRange {
            name: "link_rate",
            ..
        })
    ));
}
