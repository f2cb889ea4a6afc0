//! Network namespaces, which are machines of their own to everything that speaks IP.

use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace, which goes when this does. Only root can have one.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A namespace whose loopback is up.
    ///
    /// # Errors
    /// Why the system makes none, in a line.
    pub fn new() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers have to differ, nothing else hangs on them.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpbell-{}-{number}", process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Two namespaces with one link between them. The ends have the addresses 10.78.0.1 and fd78::1, 10.78.0.2 and
    /// fd78::2, and an MTU for RoCE packets of 4,096 bytes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn joined() -> Result<[Self; 2], String> {
        let both = [Self::new()?, Self::new()?];
        let far = &both[1].name;
        both[0].ip(&format!(
            "link add {LINK} type veth peer name {LINK} netns {far}"
        ))?;
        for (number, namespace) in (1..).zip(&both) {
            namespace.ip(&format!("addr add 10.78.0.{number}/24 dev {LINK}"))?;
            namespace.ip(&format!("addr add fd78::{number}/64 dev {LINK} nodad"))?;
            namespace.ip(&format!("link set {LINK} mtu 4200 up"))?;
        }
        Ok(both)
    }

    /// Runs `ip` with these words in the namespace.
    ///
    /// # Errors
    /// What it said.
    pub fn ip(&self, words: &str) -> Result<(), String> {
        let words: Vec<_> = words.split_whitespace().collect();
        ip(&[&["-n", self.name.as_str()], &words[..]].concat())
    }

    /// The same call, in the namespace. Its process becomes the program.
    #[must_use]
    pub fn call(&self, call: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name, "env"]);
        // Options come before variables.
        for (name, value) in call.get_envs() {
            if value.is_none() {
                inside.arg("-u").arg(name);
            }
        }
        for (name, value) in call.get_envs() {
            if let Some(value) = value {
                let mut variable = name.to_owned();
                variable.push("=");
                variable.push(value);
                inside.arg(variable);
            }
        }
        inside.arg(call.get_program()).args(call.get_args());
        inside
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What is left goes with the machine.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// The link of [`Namespace::joined`], in both.
pub const LINK: &str = "joined";

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| format!("no ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip {}: {}", words.join(" "), said.trim()))
        }
    }
}
