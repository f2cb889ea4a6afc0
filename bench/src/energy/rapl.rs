//! Energy of CPU packages, by the files of Linux' powercap.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Unreadable;

/// All packages of the machine.
pub(super) struct Packages(Vec<Package>);

struct Package {
    name: String,
    counter: PathBuf,
    /// Where the counter starts again from 0, in µJ.
    range: u64,
}

impl Packages {
    /// The packages in that folder: `/sys/class/powercap`, or one of a test.
    ///
    /// # Errors
    /// None is there, or one cannot be read.
    pub fn open(folder: &Path) -> Result<Self, Unreadable> {
        let mut packages = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let zone = entry.path();
            // `intel-rapl-mmio` is a second way to the same counters.
            let folder = entry.file_name();
            if !folder.to_string_lossy().starts_with("intel-rapl:") {
                continue;
            }
            let name = text(&zone.join("name"))?;
            // Others are parts of a package, or the whole platform with the packages in it.
            if name.starts_with("package-") {
                packages.push(Package {
                    name,
                    counter: zone.join("energy_uj"),
                    range: number(&zone.join("max_energy_range_uj"))?,
                });
            }
        }
        if packages.is_empty() {
            let folder = folder.into();
            return Err(Unreadable::NoPackage { folder });
        }
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        let packages = Self(packages);
        packages.read()?;
        Ok(packages)
    }

    /// In words.
    pub fn words(&self) -> String {
        let names = self.0.iter().map(|package| package.name.as_str());
        format!("RAPL, {}", names.collect::<Vec<_>>().join(", "))
    }

    /// What each counter says, in µJ.
    ///
    /// # Errors
    /// A counter that cannot be read.
    pub fn read(&self) -> Result<Vec<u64>, Unreadable> {
        self.0
            .iter()
            .map(|package| number(&package.counter))
            .collect()
    }

    /// Joules from one reading to a later one. No counter may have gone round more than once: that takes minutes at
    /// least.
    pub fn joules(&self, before: &[u64], after: &[u64]) -> f64 {
        let each = self.0.iter().zip(before).zip(after);
        let taken = each.map(|((package, &before), &after)| match after >= before {
            true => after - before,
            false => package.range.saturating_sub(before) + after,
        });
        taken.sum::<u64>() as f64 / 1e6
    }
}

fn text(path: &Path) -> Result<String, Unreadable> {
    let failed = |source: io::Error| Unreadable::File {
        path: path.into(),
        source,
    };
    Ok(fs::read_to_string(path).map_err(failed)?.trim().into())
}

fn number(path: &Path) -> Result<u64, Unreadable> {
    let text = text(path)?;
    text.parse().map_err(|_| Unreadable::NoNumber {
        path: path.into(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that stands in for powercap, until it is dropped.
    struct Powercap(PathBuf);

    impl Powercap {
        fn new(name: &str) -> Self {
            let folder = format!("warpbell-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn zone(&self, folder: &str, name: &str, counter: &str) -> &Self {
            let zone = self.0.join(folder);
            fs::create_dir_all(&zone).unwrap();
            let files = [
                ("name", name),
                ("energy_uj", counter),
                ("max_energy_range_uj", "1000000000"),
            ];
            for (file, content) in files {
                fs::write(zone.join(file), format!("{content}\n")).unwrap();
            }
            self
        }

        fn refused(&self) -> Unreadable {
            match Packages::open(&self.0) {
                Ok(packages) => panic!("{}", packages.words()),
                Err(why) => why,
            }
        }
    }

    impl Drop for Powercap {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn packages_alone_count_each_once_and_also_when_one_starts_again() {
        let powercap = Powercap::new("packages");
        powercap
            .zone("intel-rapl:1", "package-1", "999500000")
            .zone("intel-rapl:0", "package-0", "40000000")
            .zone("intel-rapl:0:0", "core", "1")
            .zone("intel-rapl:2", "psys", "2")
            .zone("intel-rapl-mmio:0", "package-0", "3")
            .zone("dtpm", "package-9", "4");
        let packages = Packages::open(&powercap.0).unwrap();
        assert_eq!(packages.words(), "RAPL, package-0, package-1");
        let before = packages.read().unwrap();
        assert_eq!(before, [40_000_000, 999_500_000]);
        powercap
            .zone("intel-rapl:1", "package-1", "250000")
            .zone("intel-rapl:0", "package-0", "42000000")
            .zone("intel-rapl:2", "psys", "9000000");
        let after = packages.read().unwrap();
        // 2 J of the first. The second took 0.5 J to its end, and 0.25 J behind it.
        assert_eq!(packages.joules(&before, &after), 2.75);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let nowhere = Path::new("/nowhere/powercap");
        let none = Packages::open(nowhere).err().unwrap().to_string();
        assert!(
            none.starts_with("/nowhere/powercap has no RAPL package"),
            "{none}"
        );
        let powercap = Powercap::new("refused");
        powercap.zone("intel-rapl:0", "psys", "1");
        assert!(matches!(powercap.refused(), Unreadable::NoPackage { .. }));
        powercap.zone("intel-rapl:1", "package-0", "many");
        let why = powercap.refused().to_string();
        assert!(
            why.ends_with(r#"energy_uj says "many", which is no number"#),
            "{why}"
        );
        fs::remove_file(powercap.0.join("intel-rapl:1/energy_uj")).unwrap();
        let why = powercap.refused();
        let path = powercap.0.join("intel-rapl:1/energy_uj");
        assert!(matches!(why, Unreadable::File { path: of, .. } if of == path));
    }
}
