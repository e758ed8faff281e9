//! Where the binaries are: the control plane's in the cache folder, ours in the workspace's target folder.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Kubernetes version that `control-plane/build.sh` builds.
pub const KUBERNETES_VERSION: &str = "1.37.2";
/// etcd version that `control-plane/build.sh` builds.
pub const ETCD_VERSION: &str = "3.7.3";
/// The command that builds the control plane, for messages.
pub const BUILD_COMMAND: &str = "e2e/control-plane/build.sh";

/// Folder into which `control-plane/build.sh` builds: `${DRACM_CACHE:-$HOME/.cache/dra-controller-manager}`
/// and the versions.
///
/// # Errors
/// Neither `DRACM_CACHE` nor `HOME` is set.
pub fn control_plane_folder() -> Result<PathBuf> {
    let root = match env::var_os("DRACM_CACHE") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env::var_os("HOME").context("neither DRACM_CACHE nor HOME is set")?)
            .join(".cache/dra-controller-manager"),
    };
    Ok(root.join(format!("v{KUBERNETES_VERSION}-etcd{ETCD_VERSION}")))
}

/// Folder with the complete control plane.
///
/// # Errors
/// It is not built, or a build of it was cut short. The message names the command that builds it.
pub fn built_control_plane() -> Result<PathBuf> {
    let folder = control_plane_folder()?;
    if !folder.join(".complete").is_file() {
        bail!(
            "the control plane is not built in {}: run `{BUILD_COMMAND}` (or `make control-plane`); \
             the first time takes about 8 minutes on two cores",
            folder.display()
        );
    }
    Ok(folder)
}

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The `dra-controller-manager` binary: `DRACM_BIN`, else the newest one in the workspace's target folder.
///
/// # Errors
/// There is none. The message names the command that builds it.
pub fn manager() -> Result<PathBuf> {
    if let Some(path) = env::var_os("DRACM_BIN") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("DRACM_BIN={} does not exist", path.display());
        }
        return Ok(path);
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    ["ci", "debug", "release"]
        .iter()
        .map(|profile| target.join(profile).join("dra-controller-manager"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .with_context(|| {
            format!(
                "no dra-controller-manager in {}: run `cargo build --profile ci` (or `make build`), or set DRACM_BIN",
                target.display()
            )
        })
}
