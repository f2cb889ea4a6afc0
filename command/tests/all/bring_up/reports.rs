//! The reports: their schema, what is taken out of them, and the page.

use std::fs;

use serde_json::{Value, json};

use super::{Folder, diagnosis, step};

/// What a script prints that says whose machine it is of.
const TELLING: &str = "\
    echo \"$(cat /proc/sys/kernel/hostname) alice@node7 10.20.30.40:4791 fe80::1234:5678%eth0 $HOME/x <b>&\"; \
    echo 'every byte verified'";

/// The names that `docs/bring-up.md` states.
#[test]
fn the_json_has_the_stated_schema() {
    let folder = Folder::new();
    folder.script("suite", "exit 1");
    let (_, document) = folder.document(&["--quick", "--nic", "mlx5_0"]);
    let keys = |value: &Value| Vec::from_iter(value.as_object().unwrap().keys().cloned());
    let sorted = |names: &[&str]| {
        let mut names = Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
        names.sort();
        names
    };
    let all = [
        "format", "version", "date", "scrubbed", "verdict", "answer", "quick", "nic", "machine",
        "steps", "findings",
    ];
    assert_eq!(keys(&document), sorted(&all));
    assert_eq!(
        (&document["format"], &document["quick"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["scrubbed"], true);
    let machine = ["system", "kernel", "processor", "threads", "driver", "gpus"];
    assert_eq!(keys(&document["machine"]), sorted(&machine));
    let fields = [
        "step", "proves", "verdict", "why", "command", "seconds", "output", "remedy",
    ];
    for step in document["steps"].as_array().unwrap() {
        assert_eq!(keys(step), sorted(&fields));
    }
    let suite = step(&document, "suite");
    assert!(
        suite["seconds"].is_f64() && suite["remedy"].is_string(),
        "{suite}"
    );
    let nodes = step(&document, "two-nodes");
    assert!(
        nodes["command"].is_null() && nodes["seconds"].is_null(),
        "{nodes}"
    );
    let found = &document["findings"].as_array().unwrap()[0];
    assert_eq!(
        keys(found),
        sorted(&[
            "subject",
            "check",
            "state",
            "needed",
            "needed_by",
            "value",
            "remedy"
        ])
    );
}

#[test]
fn reports_have_no_names_unless_asked_for() {
    let folder = Folder::new();
    folder.script("demo", TELLING);
    let mut report = diagnosis();
    report["findings"][2]["value"] =
        "port 1 has GID fe80:0000:0000:0000:0000:0000:1234:5678".into();
    folder.doctor(&report);
    let page = folder.path().join("page.html");
    let options = [
        "--node",
        "alice@node7.example.org",
        "--address",
        "fd00::99",
        "--html",
        page.to_str().unwrap(),
    ];
    let document = |names: &[&str]| {
        let mut command = folder.command(&[&options[..], names, &["--json"]].concat());
        let output = command
            .env("HOME", "/home/bob")
            .env("USER", "bob")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + &fs::read_to_string(&page).unwrap()
    };
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let folder_name = folder.path().display().to_string();
    let telling = [
        host.trim(),
        "alice",
        "node7",
        "example.org",
        "10.20.30.40",
        "fd00::99",
        "fe80:",
        "bob",
        &folder_name,
    ];
    let text = document(&[]);
    for word in telling {
        assert!(!text.contains(word), "{word} in {text}");
    }
    // The same name has one placeholder in all places, and an address in all spellings.
    assert!(text.contains("port 1 has GID <address-2>"), "{text}");
    let line = "<host-1> <user-1>@<host-2> <address-1>:4791 <address-2>%eth0 <home>/x <b>&";
    let value: Value = serde_json::from_str(text.split("<!DOCTYPE").next().unwrap()).unwrap();
    let lines = &step(&value, "cpu")["output"];
    assert_eq!(lines[0], line);
    let command = step(&value, "two-nodes")["command"].as_str().unwrap();
    let launch = "<programs>/warpbell-launch -n 2 --hosts <host-1>,<user-1>@<host-2> ";
    assert!(command.starts_with(launch), "{command}");
    assert!(command.contains("--address <address-3> "), "{command}");
    let text = document(&["--names"]);
    for word in telling {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn the_page_needs_nothing_else_and_shows_all() {
    let folder = Folder::new();
    folder.script("demo", TELLING);
    folder.script("suite", "echo 'verbs <FAILED> & \"so\"'; exit 1");
    let page = folder.path().join("page.html");
    let (status, _) = folder.document(&["--html", page.to_str().unwrap(), "--nic", "mlx5_0"]);
    assert_eq!(status, Some(1));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for wanted in [
        "prefers-color-scheme: dark",
        "width=device-width",
        "<p class=\"all failed\">6 steps passed, 1 failed, 2 skipped.",
        "<section class=\"failed\">\n<h3>suite <span class=\"verdict\">failed, ",
        "<details open><summary>its last lines</summary><pre>verbs &lt;FAILED&gt; &amp; &quot;so&quot;</pre>",
        "<pre class=\"command\">&lt;programs&gt;/suite -- --on gpu --nic mlx5_0</pre>",
        "<p><b>What to do:</b> The lines name the test that failed.",
        "<p><b>Why:</b> no second node was named; add --node HOST</p>",
        "&lt;b&gt;&amp;",
        "<td>nic mlx5_0</td><td>nic-driver</td><td>ok</td>",
    ] {
        assert!(html.contains(wanted), "{wanted} in {html}");
    }
    for foreign in ["<script", "http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign} in {html}");
    }
}

/// Lines and files at once: the lines say where the files are.
#[test]
fn files_and_lines_tell_the_same() {
    let folder = Folder::new();
    let file = folder.path().join("report.json");
    let (status, text) = folder.text(&["--report", file.to_str().unwrap(), "--nic", "mlx5_0"]);
    assert_eq!(status, Some(0));
    for wanted in [
        "2 of 9  cpu\n    proves: Kernels on CPU threads",
        "/demo --nic mlx5_0\n    passed after ",
        "3 of 9  two-nodes\n    skipped: no second node was named; add --node HOST\n",
        "    | write 8 B 1.00\n",
        "7 steps passed, 0 failed, 2 skipped.\n",
        "\nReport without host names and addresses: /",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(document["verdict"], "passed");
}
