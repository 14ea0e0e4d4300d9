//! Where results go, all of them or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Files that are written aside, and take their places together.
///
/// Dropped before that, it leaves what was there, and no folder that was not.
pub(super) struct Folder {
    path: PathBuf,
    aside: Option<TempDir>,
    made: Vec<PathBuf>,
}

impl Folder {
    /// Makes the folder where there is none: an experiment should not find at its end
    /// that it cannot be written down.
    pub(super) fn open(path: &Path) -> Result<Folder> {
        let missing = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let mut folder = Folder {
            path: path.to_owned(),
            aside: None,
            made: missing.map(Path::to_owned).collect(),
        };
        let writing = || format!("writing to {}", path.display());
        fs::create_dir_all(path).with_context(writing)?;
        let aside = tempfile::Builder::new()
            .prefix(".fairlane-")
            .tempdir_in(path);
        // In the system's words, without the name that nobody gave.
        let plain = |error: io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => error.kind().into(),
        };
        folder.aside = Some(aside.map_err(plain).with_context(writing)?);
        Ok(folder)
    }

    /// Puts `files` in place, by name.
    pub(super) fn finish(mut self, files: &[(&str, &[u8])]) -> Result<()> {
        let aside = self.aside.take().expect("it is there until the end");
        for (name, content) in files {
            fs::write(aside.path().join(name), content)
                .with_context(|| format!("writing {}", self.path.join(name).display()))?;
        }
        for (name, _) in files {
            let target = self.path.join(name);
            fs::rename(aside.path().join(name), &target)
                .with_context(|| format!("writing {}", target.display()))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.aside = None;
        for folder in &self.made {
            // Not empty: somebody else needs it.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// Where the results of the experiment `name` belong: beside its scenario if `from` lies
/// in a checkout, else in a folder of their own.
pub(super) fn default_for(name: &str, from: &Path) -> PathBuf {
    let kept = |root: &Path| root.join("experiments").join(name);
    let checkout = from
        .ancestors()
        .find(|root| kept(root).join("scenario.toml").is_file());
    match checkout {
        Some(root) => kept(root),
        None => Path::new("fairlane-experiments").join(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_appear_together_at_the_end_and_nothing_else_does() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        let folder = Folder::open(&path).unwrap();
        folder.finish(&[("one", b"1"), ("two", b"2")]).unwrap();
        assert_eq!(fs::read(path.join("one")).unwrap(), b"1");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_is_left_early_is_as_it_was() {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir(temporary.path().join("a")).unwrap();
        drop(Folder::open(&temporary.path().join("a/b/c")).unwrap());
        assert_eq!(fs::read_dir(temporary.path().join("a")).unwrap().count(), 0);
        fs::write(temporary.path().join("a/kept"), "").unwrap();
        drop(Folder::open(&temporary.path().join("a")).unwrap());
        assert!(temporary.path().join("a/kept").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_is_refused_at_once() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Folder::open(&file.join("below")).err().unwrap();
        assert!(error.to_string().contains("file/below"), "{error:#}");
        assert!(file.is_file());
    }

    #[test]
    fn results_go_beside_the_scenario_in_a_checkout_and_apart_elsewhere() {
        let temporary = tempfile::tempdir().unwrap();
        let within = temporary.path().join("crates/cli");
        let kept = temporary.path().join("experiments/lock");
        fs::create_dir_all(&within).unwrap();
        fs::create_dir_all(&kept).unwrap();
        let apart = Path::new("fairlane-experiments/lock");
        assert_eq!(default_for("lock", &within), apart);
        fs::write(kept.join("scenario.toml"), "").unwrap();
        assert_eq!(default_for("lock", &within), kept);
        assert_eq!(default_for("lock", temporary.path()), kept);
    }
}
