//! Simulates clusters of GPUs: who drives the network, on up to 65,536 nodes.

use std::error::Error;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use warpbell_cluster::driver::Driver;
use warpbell_cluster::figures::{self, Figure};
use warpbell_cluster::generate::{self, Algorithm, Reduction};
use warpbell_cluster::goal::Schedule;
use warpbell_cluster::parameters::Parameters;
use warpbell_cluster::paths;
use warpbell_cluster::predict::{self, Benchmarks};
use warpbell_cluster::projection;
use warpbell_cluster::sensitivity;
use warpbell_cluster::simulate::{Cluster, run};
use warpbell_cluster::topology::Topology;

/// Simulates clusters of GPUs, with the host, a stream, a proxy, triggers or the kernel itself driving the network.
#[derive(Debug, Parser)]
#[command(version, name = "cluster", max_term_width = 98)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Simulates a schedule in GOAL
    Run {
        /// The schedule's file
        file: PathBuf,
        /// Who drives the network; all by default
        #[arg(long, value_delimiter = ',')]
        drivers: Vec<Driver>,
        /// How nodes are connected
        #[arg(long, default_value = "fat-tree")]
        topology: Shape,
        /// Takes away a link between two switches, such as 0-8
        #[arg(long)]
        cut: Vec<String>,
        /// Prints a line for each rank
        #[arg(long)]
        ranks: bool,
        #[command(flatten)]
        setting: Setting,
    },
    /// Prints a workload as a schedule in GOAL
    Generate {
        /// Which
        workload: Workload,
        /// How many ranks; a put has 2
        #[arg(long, default_value_t = 4)]
        nodes: u32,
        /// Bytes of a message, or of each rank's data
        #[arg(long, default_value_t = 1 << 20)]
        bytes: u64,
        /// The most bytes of a message
        #[arg(long, default_value_t = 64 << 10)]
        chunk: u64,
        #[command(flatten)]
        setting: Setting,
    },
    /// Simulates the figures of paper 003, and writes CSV and SVG
    Figures {
        /// The folder for the files
        #[arg(long, default_value = ".")]
        out: PathBuf,
        /// Which figures; all by default
        #[arg(long, value_delimiter = ',')]
        only: Vec<Figure>,
        /// Who drives the network; by default host, gds, proxy, triggered and kernel
        #[arg(long, value_delimiter = ',')]
        drivers: Vec<Driver>,
        /// Up to how many nodes; Jacobi has at most 4096
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=65_536))]
        nodes: u32,
        #[command(flatten)]
        setting: Setting,
    },
    /// Projects how much faster paper 003's training workloads run, from the share of their time that they are blocked
    Projection {
        /// The folder for the files
        #[arg(long, default_value = ".")]
        out: PathBuf,
        /// Up to how many nodes
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=65_536))]
        nodes: u32,
        /// Bytes of a reduction, which the paper does not say
        #[arg(long, default_value_t = 64 << 10)]
        bytes: u64,
        #[command(flatten)]
        setting: Setting,
    },
    /// Doubles and halves each parameter, and prints what that does to the time
    Sensitivity {
        /// Which workload
        #[arg(long, default_value = "jacobi")]
        figure: Figure,
        /// How many nodes, or bytes of a put
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(2..=1 << 30))]
        over: u64,
        /// Who drives the network
        #[arg(long, default_value = "kernel")]
        driver: Driver,
        #[command(flatten)]
        setting: Setting,
    },
    /// Predicts what `allreduce` measures on one machine, from benchmarks of its parts
    Predict {
        /// The folder with the benchmarks' documents
        folder: PathBuf,
        /// Cores that the NIC's engine and the kernels' blocks share; 0, if each has its own
        #[arg(long, default_value_t = 0)]
        cores: u32,
    },
    /// Prints what the paths of a SmartNIC can carry, alone and together, and what a batch under one doorbell gains
    Paths {
        /// Counts the headers of packets as well
        #[arg(long)]
        headers: bool,
    },
    /// Prints all parameters with their sources
    Parameters,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    FatTree,
    Star,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    Put,
    Ring,
    Doubling,
    Tree,
    AllToAll,
    Jacobi,
    Training,
}

#[derive(Debug, Args)]
struct Setting {
    /// Takes the parameters of paper 003 where it gives them; figures then have a star
    #[arg(long)]
    paper: bool,
    /// Changes a parameter: NAME=NUMBER
    #[arg(long)]
    set: Vec<String>,
    /// Decides which of several ways a pair of nodes takes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Setting {
    fn parameters(&self) -> Result<Parameters, Box<dyn Error>> {
        let mut parameters = match self.paper {
            true => Parameters::paper(),
            false => Parameters::default(),
        };
        for change in &self.set {
            parameters.apply(change)?;
        }
        Ok(parameters)
    }
}

fn main() -> ExitCode {
    let mut out = BufWriter::new(stdout().lock());
    let acted = act(Command::parse().action, &mut out);
    match acted.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough, such as `head`, is no error.
        Err(error) if closed(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is no better place to say that this cannot be said.
            let _ = writeln!(stderr(), "cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Nobody reads the output any more.
fn closed(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn act(action: Action, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    match action {
        Action::Run {
            file,
            drivers,
            topology,
            cut,
            ranks,
            setting,
        } => {
            let text = fs::read_to_string(&file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            let schedule: Result<Schedule, _> = text.parse();
            let program = schedule.and_then(Schedule::check);
            let program = program.map_err(|error| format!("{}: {error}", file.display()))?;
            let hosts = program.ranks.len();
            let mut topology = match topology {
                Shape::FatTree => Topology::fat_tree(hosts)?,
                Shape::Star => Topology::star(hosts),
            };
            for link in &cut {
                topology.cut_named(link)?;
            }
            let drivers = match drivers.is_empty() {
                true => Driver::ALL.to_vec(),
                false => drivers,
            };
            // What is wrong is told before anything is printed.
            let parameters = setting.parameters()?;
            writeln!(
                out,
                "driver,rank,end (µs),kernel's end (µs),messages,PCIe packets"
            )?;
            for driver in drivers {
                let cluster = Cluster {
                    topology: topology.clone(),
                    parameters: parameters.clone(),
                    driver,
                    seed: setting.seed,
                };
                let outcome = run(&cluster, program.clone())?;
                let mut line = |rank: &str, end, finish, messages, packets| {
                    writeln!(
                        out,
                        "{},{rank},{end:.6},{finish:.6},{messages},{packets}",
                        driver.name()
                    )
                };
                for report in outcome.ranks.iter().filter(|_| ranks) {
                    let (end, finish) = (report.end.microseconds(), report.finish.microseconds());
                    line(
                        &report.rank.to_string(),
                        end,
                        finish,
                        report.messages,
                        report.packets,
                    )?;
                }
                let (end, finish) = (
                    outcome.end().microseconds(),
                    outcome.finish().microseconds(),
                );
                line("all", end, finish, outcome.messages(), outcome.packets())?;
            }
        }
        Action::Generate {
            workload,
            nodes,
            bytes,
            chunk,
            setting,
        } => {
            let parameters = setting.parameters()?;
            let reduce = |algorithm| {
                let memory = parameters.gpu_memory;
                let reduction = Reduction {
                    algorithm,
                    bytes,
                    chunk,
                    memory,
                };
                generate::all_reduce(nodes, &reduction)
            };
            let schedule = match workload {
                Workload::Put => generate::put(bytes),
                Workload::Ring => reduce(Algorithm::Ring),
                Workload::Doubling => reduce(Algorithm::Doubling),
                Workload::Tree => reduce(Algorithm::Tree),
                Workload::AllToAll => generate::all_to_all(nodes, bytes),
                Workload::Jacobi => Figure::Jacobi.schedule(nodes.into(), &parameters),
                Workload::Training => Figure::Training.schedule(nodes.into(), &parameters),
            };
            write!(out, "{}", schedule?)?;
        }
        Action::Figures {
            out: folder,
            only,
            drivers,
            nodes,
            setting,
        } => {
            let parameters = setting.parameters()?;
            let drivers = match drivers.is_empty() {
                true => Driver::FIGURES.to_vec(),
                false => drivers,
            };
            let figures = match only.is_empty() {
                true => Figure::ALL.to_vec(),
                false => only,
            };
            let (ending, subtitle) = match setting.paper {
                true => (
                    "-paper",
                    "Simulated, with the parameters of paper 003 and a star",
                ),
                false => ("", "Simulated: H200, 100 Gbit/s, PCIe 4.0, a fat tree"),
            };
            let places = figures.iter().map(|figure| figure.places(nodes));
            let places: Vec<_> = places.collect::<Result<_, _>>()?;
            fs::create_dir_all(&folder)?;
            for (figure, places) in figures.into_iter().zip(places) {
                let mut points = Vec::new();
                for over in places {
                    let (star, seed) = (setting.paper, setting.seed);
                    points.push(figure.point(over, &parameters, &drivers, star, seed)?);
                    // Progress may go nowhere.
                    let _ = writeln!(stderr(), "{}: {over}", figure.name());
                }
                let path = folder.join(format!("{}{ending}", figure.name()));
                fs::write(
                    path.with_extension("csv"),
                    figures::csv(figure, &drivers, &points),
                )?;
                fs::write(
                    path.with_extension("svg"),
                    figures::svg(figure, &drivers, &points, subtitle),
                )?;
            }
        }
        Action::Projection {
            out: folder,
            nodes,
            bytes,
            setting,
        } => {
            let parameters = setting.parameters()?;
            let (ending, seed) = (if setting.paper { "-paper" } else { "" }, setting.seed);
            let points = projection::points(nodes, bytes, &parameters, setting.paper, seed)?;
            fs::create_dir_all(&folder)?;
            let path = folder.join(format!("projection{ending}"));
            fs::write(path.with_extension("csv"), projection::csv(&points))?;
            fs::write(path.with_extension("svg"), projection::svg(&points))?;
        }
        Action::Sensitivity {
            figure,
            over,
            driver,
            setting,
        } => {
            let parameters = setting.parameters()?;
            let effects = sensitivity::effects(figure, over, driver, &parameters, setting.seed)?;
            writeln!(
                out,
                "parameter,time with half of it (ratio),time with twice of it (ratio)"
            )?;
            for effect in effects {
                writeln!(
                    out,
                    "{},{:.4},{:.4}",
                    effect.parameter, effect.halved, effect.doubled
                )?;
            }
        }
        Action::Predict { folder, cores } => {
            write!(
                out,
                "{}",
                predict::table(&Benchmarks::read(&folder)?, cores)?
            )?;
        }
        Action::Paths { headers } => write!(out, "{}", paths::table(headers))?,
        Action::Parameters => write!(out, "{}", Parameters::table())?,
    }
    Ok(())
}
