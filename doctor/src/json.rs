//! The report as JSON, and CUDA's answer on its way between two processes.
//!
//! Written by hand, because serde's derive macros take longer to build than the rest of this program.

use serde_core::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::cuda::{Answer, Gpu, Gpus};
use super::distance::Distance;
use super::finding::{Check, Finding, State, Subject};
use super::pci::Address;
use super::report::{PairVerdict, Report};

/// Writes a structure as its fields, all of them, in this order; one that is marked `if there` only if it is not none.
macro_rules! fields {
    ($type:ty: $($field:ident $(if $there:ident)?),+) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field),+ } = self;
                let mut map = serializer.serialize_map(None)?;
                $(fields!(map $field $($there)?);)+
                map.end()
            }
        }
    };
    ($map:ident $field:ident) => {
        $map.serialize_entry(stringify!($field), $field)?
    };
    ($map:ident $field:ident there) => {
        if $field.is_some() {
            $map.serialize_entry(stringify!($field), $field)?;
        }
    };
}

/// Writes a variant as a word.
macro_rules! words {
    ($type:ty: $($variant:ident $word:literal),+) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(match self {
                    $(Self::$variant => $word),+
                })
            }
        }
    };
}

fields!(Report: format, ready, pairs, findings);
fields!(PairVerdict: gpu, nic, distance, ready);
fields!(Finding: subject, check, state, needed, needed_by, value, risk if there, remedy);
fields!(Gpus: version, gpus);
fields!(Gpu: address, capability, memory, dmabuf, gpu_direct_rdma, writes_ordering);

words!(State: Ok "ok", Missing "missing", Unknown "unknown");
words!(
    Distance:
    SameSwitch "same-switch",
    SameRootPort "same-root-port",
    SameNode "same-node",
    AcrossNodes "across-nodes",
    Unknown "unknown"
);

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, gpu, nic, port) = match self {
            Self::Node => ("node", None, None, None),
            Self::Gpu { gpu } => ("gpu", Some(gpu), None, None),
            Self::Nic { nic } => ("nic", None, Some(nic), None),
            Self::Port { nic, port } => ("port", None, Some(nic), Some(port)),
            Self::Pair { gpu, nic } => ("pair", Some(gpu), Some(nic), None),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", kind)?;
        if let Some(gpu) = gpu {
            map.serialize_entry("gpu", gpu)?;
        }
        if let Some(nic) = nic {
            map.serialize_entry("nic", nic)?;
        }
        if let Some(port) = port {
            map.serialize_entry("port", port)?;
        }
        map.end()
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::NoLibrary(why) => map.serialize_entry("no-library", why)?,
            Self::Refused { call, result } => {
                let refused = serde_json::json!({"call": call, "result": result});
                map.serialize_entry("refused", &refused)?;
            }
            Self::Gpus(gpus) => map.serialize_entry("gpus", gpus)?,
        }
        map.end()
    }
}

impl Answer {
    /// Reads what another process wrote; none if it is no answer.
    pub fn from_json(text: &str) -> Option<Self> {
        let answer: Value = serde_json::from_str(text).ok()?;
        if let Some(why) = answer["no-library"].as_str() {
            return Some(Self::NoLibrary(why.into()));
        }
        if let refused @ Value::Object(_) = &answer["refused"] {
            return Some(Self::Refused {
                call: refused["call"].as_str()?.into(),
                result: number(&refused["result"])?,
            });
        }
        let gpus = &answer["gpus"];
        Some(Self::Gpus(Gpus {
            version: number(&gpus["version"])?,
            gpus: gpus["gpus"]
                .as_array()?
                .iter()
                .map(gpu)
                .collect::<Option<_>>()?,
        }))
    }
}

fn gpu(gpu: &Value) -> Option<Gpu> {
    let capability = &gpu["capability"];
    Some(Gpu {
        address: gpu["address"].as_str()?.parse().ok()?,
        capability: (number(&capability[0])?, number(&capability[1])?),
        memory: gpu["memory"].as_u64()?,
        dmabuf: gpu["dmabuf"].as_bool()?,
        gpu_direct_rdma: gpu["gpu_direct_rdma"].as_bool()?,
        writes_ordering: number(&gpu["writes_ordering"])?,
    })
}

fn number(value: &Value) -> Option<i32> {
    value.as_i64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus() -> Answer {
        Answer::Gpus(Gpus {
            version: 13_000,
            gpus: vec![Gpu {
                address: "0000:18:00.0".parse().unwrap(),
                capability: (9, 0),
                memory: 80 << 30,
                dmabuf: true,
                gpu_direct_rdma: false,
                writes_ordering: 200,
            }],
        })
    }

    #[test]
    fn every_answer_survives_being_written() {
        let refused = Answer::Refused {
            call: "cuInit".into(),
            result: -1,
        };
        for answer in [gpus(), refused, Answer::NoLibrary("gone".into())] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(Answer::from_json(&text), Some(answer), "{text}");
        }
    }

    #[test]
    fn an_answer_with_a_field_missing_is_none() {
        let whole = serde_json::to_value(gpus()).unwrap();
        let names: Vec<_> = whole["gpus"]["gpus"][0]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(names.len(), 6);
        for name in names {
            let mut part = whole.clone();
            part["gpus"]["gpus"][0]
                .as_object_mut()
                .unwrap()
                .remove(name);
            assert_eq!(Answer::from_json(&part.to_string()), None, "{name}");
        }
        for part in [
            r#"{}"#,
            r#"[]"#,
            r#"{"refused":{"call":"cuInit"}}"#,
            r#"{"refused":{"call":"cuInit","result":99999999999}}"#,
            r#"{"gpus":{"gpus":[]}}"#,
        ] {
            assert_eq!(Answer::from_json(part), None, "{part}");
        }
    }

    #[test]
    fn a_subject_has_its_own_fields_and_a_finding_its_risk() {
        let nic = || "mlx5_0".to_owned();
        let gpu = "0000:18:00.0".parse().unwrap();
        for (subject, text) in [
            (Subject::Node, r#"{"kind":"node"}"#),
            (
                Subject::Gpu { gpu },
                r#"{"kind":"gpu","gpu":"0000:18:00.0"}"#,
            ),
            (
                Subject::Nic { nic: nic() },
                r#"{"kind":"nic","nic":"mlx5_0"}"#,
            ),
            (
                Subject::Port {
                    nic: nic(),
                    port: 1,
                },
                r#"{"kind":"port","nic":"mlx5_0","port":1}"#,
            ),
            (
                Subject::Pair { gpu, nic: nic() },
                r#"{"kind":"pair","gpu":"0000:18:00.0","nic":"mlx5_0"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&subject).unwrap(), text);
        }
        let found = Subject::Node.ok(Check::GpuDriver, "580");
        assert_eq!(
            serde_json::to_string(&found).unwrap(),
            r#"{"subject":{"kind":"node"},"check":"gpu-driver","state":"ok","needed":true,"needed_by":["gpu"],"value":"580","remedy":null}"#
        );
        let risky = serde_json::to_string(&found.risky("much")).unwrap();
        assert!(
            risky.contains(r#""value":"580","risk":"much","remedy":null"#),
            "{risky}"
        );
    }
}
