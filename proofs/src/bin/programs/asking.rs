//! Programs that ask what devices there are: by libibverbs, by RDMA netlink, and by the files of sysfs.

use warpbell_proofs::preloaded;

use crate::{Outcome, missing};

/// A program, and what it has to say.
pub struct Question {
    pub program: &'static str,
    pub options: &'static str,
    /// Lines, of which only words and their order count.
    lines: &'static [&'static str],
}

pub const QUESTIONS: &[Question] = &[
    Question {
        program: "ibv_devices",
        options: "",
        lines: &["mlx5_0 020000fffe000001"],
    },
    Question {
        program: "ibv_devinfo",
        options: "-v",
        lines: &[
            "hca_id: mlx5_0",
            "node_guid: 0200:00ff:fe00:0001",
            "state: PORT_ACTIVE (4)",
            "link_layer: Ethernet",
        ],
    },
    Question {
        program: "rdma",
        options: "dev",
        lines: &[
            "0: mlx5_0: node_type ca fw 0.0.0 node_guid 0200:00ff:fe00:0001 sys_image_guid 0200:00ff:fe00:0001",
        ],
    },
    Question {
        program: "rdma",
        options: "link",
        lines: &["link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev lo"],
    },
    Question {
        program: "rdma",
        options: "system",
        lines: &["netns shared copy-on-fork on"],
    },
    Question {
        program: "ibstat",
        options: "",
        lines: &[
            "CA 'mlx5_0'",
            "CA type: MT4119",
            "Number of ports: 1",
            "Node GUID: 0x020000fffe000001",
            "State: Active",
            "Physical state: LinkUp",
            "Rate: 100",
            "Link layer: Ethernet",
        ],
    },
    Question {
        program: "ibstatus",
        options: "",
        lines: &[
            "Infiniband device 'mlx5_0' port 1 status:",
            "state: 4: ACTIVE",
            "phys state: 5: LinkUp",
            "rate: 100 Gb/sec (4X EDR)",
            "link_layer: Ethernet",
        ],
    },
];

/// Asks: the program ends well, and says each of its lines.
pub fn ask(question: &Question) -> Outcome {
    if let Some(missing) = missing(question.program) {
        return missing;
    }
    let command = preloaded::under(question.program);
    let output =
        command.and_then(|mut command| command.args(question.options.split_whitespace()).output());
    let output = match output {
        Err(error) => return Outcome::Badly(error.to_string()),
        Ok(output) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<_> = said.lines().map(words).collect();
    let unsaid = question
        .lines
        .iter()
        .find(|line| !lines.contains(&words(line)));
    match unsaid {
        None if output.status.success() => Outcome::Well("mlx5_0, port 1 active".into()),
        None => Outcome::Badly(format!("{said}{}", output.status)),
        Some(line) => Outcome::Badly(format!("it does not say \"{line}\":\n{said}")),
    }
}
