//! A filesystem in an image file, mounted through a loop device for as long as it is used.

use std::fs::{File, Permissions, create_dir, set_permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// XFS refuses less than 300 MiB. The file is sparse: it takes what is written.
const IMAGE_BYTES: u64 = 512 << 20;

pub(crate) struct Image {
    mount_point: PathBuf,
    device: Option<String>,
    is_mounted: bool,
    // Dropped last, when nothing is mounted below it any more.
    dir: TempDir,
}

impl Image {
    /// A new filesystem on a device with sectors of this many bytes; `Err` says what is missing.
    pub(crate) fn formatted(filesystem: &str, sector_bytes: u32) -> Result<Self, String> {
        let quiet_or_force = if filesystem == "ext4" { "-q" } else { "-f" };
        Self::formatted_with(filesystem, sector_bytes, &[quiet_or_force])
    }

    /// The same, with options for `mkfs`.
    pub(crate) fn formatted_with(
        filesystem: &str,
        sector_bytes: u32,
        options: &[&str],
    ) -> Result<Self, String> {
        let mut image = Self::new()?;
        let file = File::create(image.file()).map_err(|error| error.to_string())?;
        file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        let device = image.attach(sector_bytes)?;
        run(&format!("mkfs.{filesystem}"), &[options, &[device.as_str()]].concat())?;
        image.mount(filesystem, &device, "rw")?;
        Ok(image)
    }

    /// A read-only squashfs of a directory.
    pub(crate) fn squashed(source: &Path) -> Result<Self, String> {
        let mut image = Self::new()?;
        let file = image.file();
        run("mksquashfs", &[text(source), text(&file), "-quiet", "-no-progress"])?;
        let device = image.attach(512)?;
        image.mount("squashfs", &device, "ro")?;
        Ok(image)
    }

    fn new() -> Result<Self, String> {
        // Not worth trying, and not always refused in the same words.
        // SAFETY: a plain query.
        if unsafe { libc::geteuid() } != 0 {
            return Err("mounting takes root".into());
        }
        let dir = tempfile::Builder::new().prefix("ringmain-image-").tempdir();
        let dir = dir.map_err(|error| error.to_string())?;
        let mount_point = dir.path().join("mounted");
        create_dir(&mount_point).map_err(|error| error.to_string())?;
        Ok(Self { mount_point, device: None, is_mounted: false, dir })
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn attach(&mut self, sector_bytes: u32) -> Result<String, String> {
        let (file, sector) = (self.file(), sector_bytes.to_string());
        let device = run("losetup", &["--find", "--show", "--sector-size", &sector, text(&file)])?;
        self.device = Some(device.clone());
        Ok(device)
    }

    fn mount(&mut self, filesystem: &str, device: &str, mode: &str) -> Result<(), String> {
        run("mount", &["-t", filesystem, "-o", mode, device, text(&self.mount_point)])?;
        self.is_mounted = true;
        // From now on the device goes with the mount, also if this process is killed first and
        // another process unmounts.
        self.detach();
        if mode == "rw" {
            let open_to_all = Permissions::from_mode(0o755);
            set_permissions(&self.mount_point, open_to_all).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Writes the file out, drops it from the page cache, and lets every read of the device fail from
    /// now on: a loop device answers `EIO` for what its image does not have.
    pub(crate) fn fail_reads_of(&self, path: &Path) {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        let image = File::options().write(true).open(self.file()).unwrap();
        image.set_len(0).unwrap();
        // SAFETY: the descriptor is open; the call touches no memory of this process.
        let failed =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(failed, 0);
    }

    fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            let _ = run("losetup", &["--detach", &device]);
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_mounted && run("umount", &[text(&self.mount_point)]).is_err() {
            // Something below it is still in use: it goes when that does.
            let _ = run("umount", &["--lazy", text(&self.mount_point)]);
        }
        self.detach();
    }
}

/// Its output; `Err` with its error output.
fn run(program: &str, args: &[&str]) -> Result<String, String> {
    // Not on the path of every user, but that is where Debian keeps such tools.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).args(args).env("PATH", path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}: {}", output.status, complaint.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| panic!("{} is not UTF-8", path.display()))
}
