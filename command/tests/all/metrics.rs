//! Queues as metrics: their text, the server, and the dashboard.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use warpbell::wqe::Wqe;
use warpbell::{Deadline, Exclusive, GpuShared};
use warpbell_command::metrics::{Exporter, names};
use warpbell_command::top::{Side, State, Watch, page};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{Access, Device, Nic, Node, QueuePair, QueuePairConfig};

use crate::live::{domain, line, look, pairs, step_until};

/// A hang ends then, and nothing else.
const PATIENCE: Duration = Duration::from_secs(300);

/// A look at this process, which has queues.
fn own() -> Watch {
    Watch::begin(process::id()).unwrap()
}

/// The value of a queue's metric; `more` are labels beside those that each queue has.
fn value(text: &str, name: &str, pair: &QueuePair, queue: &str, more: &str) -> f64 {
    let (pid, qpn, device) = (process::id(), pair.qpn(), pair.device().gid());
    let labels = format!("pid=\"{pid}\",qpn=\"{qpn:#08x}\",queue=\"{queue}\",device=\"{device}\"");
    let head = format!("{name}{{{labels}{more}}} ");
    let mut samples = text.lines().filter_map(|line| line.strip_prefix(&head));
    let found = samples
        .next()
        .unwrap_or_else(|| panic!("no {head}\n{text}"));
    assert_eq!(samples.next(), None, "{head}");
    found.parse().unwrap()
}

#[test]
fn a_queue_has_its_values() {
    let (device, domain) = domain();
    let [ours, theirs] = pairs(&domain, |_| {});
    let region = domain.allocate(4096, Access::all()).unwrap();
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let mut receives = theirs.receive_queue().unwrap().open::<Exclusive>().unwrap();
    for _ in 0..2 {
        receives.try_post(region.local(64, 8).unwrap()).unwrap();
    }
    let send = Wqe::send(region.local(0, 8).unwrap()).signalled();
    let _ = queue.try_post(send).unwrap();
    step_until(&device, || look(&ours, Side::Send).consumer == Some(1));
    let _ = queue.try_post(send).unwrap();
    let exporter = Exporter::new(vec![own()]);
    exporter.text();
    std::thread::sleep(Duration::from_millis(20));
    let text = exporter.text();
    let of = |name: &str| value(&text, name, &ours, "send", "");
    assert_eq!(of("warpbell_queue_posted_total"), 2.0);
    assert_eq!(of("warpbell_queue_completed_total"), 1.0);
    assert_eq!(
        (of("warpbell_queue_depth"), of("warpbell_queue_credit")),
        (8.0, 7.0)
    );
    assert_eq!(of("warpbell_nic_completed_total"), 1.0);
    assert_eq!(
        (of("warpbell_queue_errors"), of("warpbell_nic_errors_total")),
        (0.0, 0.0)
    );
    let age = of("warpbell_queue_oldest_seconds");
    assert!((0.02..300.0).contains(&age), "{age}");
    let is = |state: &str| {
        let more = format!(",state=\"{state}\"");
        value(&text, "warpbell_queue_state", &ours, "send", &more)
    };
    let states = ["idle", "waiting", "failed", "unreadable"].map(is);
    assert_eq!(states, [0.0, 1.0, 0.0, 0.0]);
    let of = |name: &str| value(&text, name, &theirs, "receive", "");
    assert_eq!(of("warpbell_queue_posted_total"), 2.0);
    assert_eq!(of("warpbell_queue_completed_total"), 1.0);
    assert_eq!(
        value(&text, "warpbell_nic_received_total", &theirs, "send", ""),
        1.0
    );
    let up = format!("warpbell_up{{pid=\"{}\"}} 1", process::id());
    assert!(text.lines().any(|line| line == up), "{text}");
}

#[test]
fn errors_are_counted() {
    let (device, domain) = domain();
    let [ours, _theirs] = pairs(&domain, |_| {});
    let region = domain.allocate(4096, Access::all()).unwrap();
    let mut remote = region.remote().at(0, 8).unwrap();
    remote.key.0 ^= 0x100;
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    for _ in 0..2 {
        let write = Wqe::write(region.local(0, 8).unwrap(), remote);
        let _ = queue.try_post(write.signalled()).unwrap();
    }
    step_until(&device, || look(&ours, Side::Send).consumer == Some(2));
    let text = Exporter::new(vec![own()]).text();
    let of = |name: &str| value(&text, name, &ours, "send", "");
    assert_eq!(
        (of("warpbell_queue_errors"), of("warpbell_nic_errors_total")),
        (2.0, 2.0)
    );
    let failed = ",state=\"failed\"";
    assert_eq!(
        value(&text, "warpbell_queue_state", &ours, "send", failed),
        1.0
    );
}

/// The NIC's own counts: `top` shows them, too.
#[test]
fn what_a_nic_repeats_is_shown() {
    let (device, domain) = domain();
    let [ours, theirs] = pairs(&domain, |config| {
        config.timers.rnr_timer = 1;
        config.timers.acknowledge_timeout = 1;
    });
    let region = domain.allocate(4096, Access::all()).unwrap();
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let send = Wqe::send(region.local(0, 8).unwrap()).signalled();
    let _ = queue.try_post(send).unwrap();
    let nic = || look(&ours, Side::Send).nic.unwrap();
    step_until(&device, || nic().rnr_naks >= 3);
    let screen = own().look().unwrap();
    let counted = line(&screen, &ours, Side::Send).nic.unwrap();
    assert!(counted.completed == 0 && counted.errors == 0, "{counted:?}");
    let words = format!("{} RNR NAKs", counted.rnr_naks);
    assert!(page(&screen, 200).contains(&words), "{words}");
    // Without the other end nobody answers.
    drop(theirs);
    let before = nic().retries;
    step_until(&device, || look(&ours, Side::Send).state == State::Failed);
    let failed = look(&ours, Side::Send).waits_for;
    assert!(failed.contains("retry counter exceeded"), "{failed}");
    let retries = nic().retries;
    assert!(retries > before, "{retries}");
    let text = Exporter::new(vec![own()]).text();
    let of = |name: &str| value(&text, name, &ours, "send", "");
    assert_eq!(of("warpbell_nic_retries_total"), retries as f64);
    assert_eq!(of("warpbell_nic_rnr_naks_total"), nic().rnr_naks as f64);
}

/// Posts NOPs to a NIC that runs, and waits for the last of them.
fn post<S: warpbell::Sharing>(pair: &QueuePair, count: u32) {
    let mut queue = pair.send_queue().unwrap().open::<S>().unwrap();
    for number in 1..=count {
        let nop = Wqe::nop();
        let nop = if number % 64 == 0 || number == count {
            nop.signalled()
        } else {
            nop
        };
        let ticket = queue.post(nop, Deadline::after_ms(300_000)).unwrap();
        if number == count {
            queue.wait(ticket, Deadline::after_ms(300_000)).unwrap();
        }
    }
}

#[test]
fn counters_go_on_beyond_16_bits() {
    let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
    let domain = device.protection_domain().unwrap();
    let config = |config: &mut QueuePairConfig| config.send_depth = 1024;
    let [exclusive, shared] = pairs(&domain, config);
    let mut watch = own();
    watch.look().unwrap();
    // An exclusive queue has no other count than 16 bits, so somebody looks now and then.
    for _ in 0..3 {
        post::<Exclusive>(&exclusive, 30_000);
        watch.count().unwrap();
    }
    post::<GpuShared>(&shared, 90_000);
    let screen = watch.look().unwrap();
    for pair in [&exclusive, &shared] {
        let line = line(&screen, pair, Side::Send);
        assert_eq!((line.posted, line.completed), (Some(90_000), Some(90_000)));
        assert_eq!(line.producer, Some((90_000 % 65_536) as u16));
    }
}

#[test]
fn a_queue_that_is_reset_counts_anew() {
    let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
    let domain = device.protection_domain().unwrap();
    let [mut ours, _theirs] = pairs(&domain, |_| {});
    let mut watch = own();
    post::<Exclusive>(&ours, 5);
    assert_eq!(
        line(&watch.look().unwrap(), &ours, Side::Send).posted,
        Some(5)
    );
    ours.reset().unwrap();
    watch.count().unwrap();
    assert_eq!(
        line(&watch.look().unwrap(), &ours, Side::Send).posted,
        Some(0)
    );
}

/// A process with a queue pair, until its input ends: for the test after it.
#[test]
#[ignore = "is a process of another test"]
fn a_process_with_queues() {
    let domain = Node::cpu().domain().unwrap();
    let _pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_process_that_has_ended_is_down() {
    let (_device, domain) = domain();
    let _pairs = pairs(&domain, |_| {});
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "metrics::a_process_with_queues"])
        .args(["--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("ready")));
    let pid = child.id();
    let exporter = Exporter::new(vec![Watch::begin(pid).unwrap(), own()]);
    let text = exporter.text();
    assert!(
        text.contains(&format!("warpbell_up{{pid=\"{pid}\"}} 1\n")),
        "{text}"
    );
    assert!(text.contains(&format!("_depth{{pid=\"{pid}\"")), "{text}");
    drop(child.stdin.take());
    assert!(said.all(|line| line.is_ok()));
    child.wait().unwrap();
    for _ in 0..2 {
        let text = exporter.text();
        let down = format!("warpbell_up{{pid=\"{pid}\"}} 0\n");
        let up = format!("warpbell_up{{pid=\"{}\"}} 1\n", process::id());
        assert!(text.contains(&down) && text.contains(&up), "{text}");
        assert!(!text.contains(&format!("_depth{{pid=\"{pid}\"")), "{text}");
    }
}

/// A server of this process's metrics.
fn serve() -> SocketAddr {
    let exporter = Arc::new(Exporter::new(vec![own()]));
    // Another program may take the port in between.
    let mut tries = (0..100).map(|_| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        exporter.clone().serve(address).map(|()| address)
    });
    tries.find_map(Result::ok).expect("a free port")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What the server answers to a request, and closes the connection.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_beside_a_silent_reader() {
    let (_device, domain) = domain();
    let _pairs = pairs(&domain, |_| {});
    let address = serve();
    let silent = connect(address);
    let mut half = connect(address);
    half.write_all(b"GET /metrics HT").unwrap();
    let answer = ask(address, "GET /metrics");
    // Nobody had to go first.
    silent.set_nonblocking(true).unwrap();
    let still_open = silent.peek(&mut [0]).unwrap_err();
    assert_eq!(still_open.kind(), ErrorKind::WouldBlock);
    silent.set_nonblocking(false).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(answer.to_lowercase().contains(kind), "{answer}");
    assert!(
        answer.contains("\n# TYPE warpbell_up gauge\nwarpbell_up{pid="),
        "{answer}"
    );
    for (request, status) in [
        ("GET /", "404 Not Found"),
        ("POST /metrics", "405 Method Not Allowed"),
        ("GET /metrics?a=b", "200 OK"),
        ("nonsense", "400 Bad Request"),
    ] {
        let answer = ask(address, request);
        let answer = answer.split_once(' ').unwrap().1;
        assert!(answer.starts_with(&format!("{status}\r\n")), "{answer}");
    }
    // Both are given up after a while.
    for mut stream in [silent, half] {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// Status and error of the program. One that serves is ended.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_warpbell"), "top"]);
    let output = command.args(arguments).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn an_address_that_cannot_be_had_is_refused_by_name() {
    let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
    let domain = device.protection_domain().unwrap();
    let _pairs = pairs(&domain, |_| {});
    let pid = process::id().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (status, said) = refused(&[&pid, "--metrics", &taken]);
    assert_eq!(status, Some(2), "{said}");
    let words = format!("error: cannot serve metrics at {taken}: Address already in use");
    assert!(said.starts_with(&words), "{said}");
    for (address, words) in [
        (
            "192.0.2.1:9464",
            "cannot serve metrics at 192.0.2.1:9464: Cannot assign",
        ),
        (
            "9464",
            "invalid socket address syntax; give one such as 127.0.0.1:9464",
        ),
        ("127.0.0.1:70000", "invalid socket address syntax"),
        ("127.0.0.1:0", "port 0 is any port; choose one"),
    ] {
        let (status, said) = refused(&[&pid, "--metrics", address]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let (status, said) = refused(&["2000000000", "--metrics", "127.0.0.1:9464"]);
    assert_eq!(
        (status, &*said),
        (Some(2), "error: there is no process 2000000000\n")
    );
    let (status, said) = refused(&[&pid, "--once", "--metrics", "127.0.0.1:9464"]);
    assert!(
        status == Some(2) && said.contains("cannot be used with"),
        "{said}"
    );
}

fn beside_the_package(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), path].iter().collect()
}

/// All queries of the sample dashboard.
fn queries() -> Vec<String> {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value.as_str()) {
                        ("expr" | "query" | "definition", Some(query)) => into.push(query.into()),
                        _ => collect(value, into),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let text = std::fs::read(beside_the_package("grafana.json")).unwrap();
    let mut found = Vec::new();
    collect(&serde_json::from_slice(&text).unwrap(), &mut found);
    found.retain(|query| query != "prometheus");
    assert!(found.len() > 5, "{found:?}");
    found
}

/// The words in a text that are names of metrics, by their beginning.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("warpbell_")).collect()
}

#[test]
fn the_dashboard_and_the_page_name_the_metrics() {
    let known = BTreeSet::from_iter(names());
    for query in queries() {
        let named = metrics_in(&query);
        assert!(!named.is_empty() && named.is_subset(&known), "{query}");
    }
    let page = std::fs::read_to_string(beside_the_package("../docs/top.md")).unwrap();
    assert_eq!(metrics_in(&page), known);
}

/// `WARPBELL_PROMTOOL` names the program that comes with Prometheus.
#[test]
#[ignore = "needs promtool, which WARPBELL_PROMTOOL names"]
fn promtool_agrees() {
    let (_device, domain) = domain();
    let _pairs = pairs(&domain, |_| {});
    let text = Exporter::new(vec![own()]).text();
    judge(&["check", "metrics"], &text);
    let rules = queries()
        .into_iter()
        .filter(|query| !query.starts_with("label_values"));
    let rules = rules.map(|query| {
        // A name of Grafana's, which it replaces by values.
        let query = query.replace("$__rate_interval", "1m");
        format!("  - record: a\n    expr: {query:?}\n")
    });
    let rules = rules.collect::<String>();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: a\n  rules:\n{rules}")).unwrap();
    judge(
        &["check", "rules", "--lint=none", file.to_str().unwrap()],
        "",
    );
}

#[track_caller]
fn judge(arguments: &[&str], text: &str) {
    let promtool = std::env::var_os("WARPBELL_PROMTOOL").expect("WARPBELL_PROMTOOL names promtool");
    let mut command = Command::new(promtool);
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}\n{text}");
}
