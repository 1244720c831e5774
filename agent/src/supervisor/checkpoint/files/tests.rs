#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use rustix::process::geteuid;
use std::os::unix::fs::symlink;

struct Scene {
    folder: tempfile::TempDir,
    part: Part,
}

impl Scene {
    /// Scene with a directory that does not exist yet, and checkpoint 3 of rank 1.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("a b/checkpoints");
        let order = CheckpointOrder::new(3, directory.to_str().unwrap(), 1_000);
        let part = Part::new(&order, 1, geteuid().as_raw());
        Self { folder, part }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.part.path().join(name), text).unwrap();
    }

    fn obstacle(&self) -> String {
        match self.part.read_state().unwrap() {
            PartState::Open { obstacle, .. } => obstacle.unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn job_environment_is_shell_readable() {
    let scene = Scene::new();
    scene.part.prepare().unwrap();
    // The request path of the launch, which an order need not repeat.
    let elsewhere = scene.folder.path().join("elsewhere/request.rank-1");
    scene.part.request(&elsewhere, 1).unwrap();
    assert!(elsewhere.exists());
    let at = scene.part.directory.join("request.rank-1");
    scene.part.request(&at, 600_000).unwrap();
    scene.part.request(&at, 600_000).unwrap();
    let folder = scene.part.path();
    let script = format!(
        "while IFS='=' read -r key value; do eval \"$key=\\$value\"; done < '{}'
         echo \"$number $timeout_ms\"; echo \"$folder\"; echo \"$complete\"",
        at.display()
    );
    let shell = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .output();
    let said = String::from_utf8(shell.unwrap().stdout).unwrap();
    let folder = folder.display();
    assert_eq!(said, format!("3 600000\n{folder}\n{folder}/complete\n"));
    let names = std::fs::read_dir(&scene.part.directory).unwrap();
    let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["3", "request.rank-1"]);
}

#[test]
fn part_is_complete_when_file_has_its_number() {
    let scene = Scene::new();
    scene.part.prepare().unwrap();
    let open = |progress| PartState::Open {
        progress,
        obstacle: None,
    };
    assert_eq!(scene.part.read_state().unwrap(), open(None));
    scene.write(PROGRESS, "");
    let PartState::Open {
        progress: Some(first),
        ..
    } = scene.part.read_state().unwrap()
    else {
        panic!("no progress");
    };
    scene.write(COMPLETE, "2\n");
    assert!(
        scene
            .obstacle()
            .contains("contains number \"2\", expected 3"),
        "{}",
        scene.obstacle()
    );
    assert!(first.0 > 0);
    scene.write(COMPLETE, "3\n");
    assert_eq!(scene.part.read_state().unwrap(), PartState::Complete);
}

#[test]
fn job_reports_reason_without_checkpoint() {
    let scene = Scene::new();
    scene.part.prepare().unwrap();
    scene.write(FAILED, "2 an old one");
    assert!(scene.obstacle().starts_with("failed is not a valid answer"));
    scene.write(FAILED, "3 no space\nleft on it\n");
    let sight = scene.part.read_state().unwrap();
    assert_eq!(sight, PartState::Failed("no space left on it".to_owned()));
}

#[test]
fn answers_that_were_there_before_the_question_are_removed() {
    let scene = Scene::new();
    scene.part.prepare().unwrap();
    for name in [COMPLETE, FAILED, PROGRESS] {
        scene.write(name, "3");
    }
    scene.part.prepare().unwrap();
    let none = PartState::Open {
        progress: None,
        obstacle: None,
    };
    assert_eq!(scene.part.read_state().unwrap(), none);
    std::fs::create_dir(scene.part.path().join(COMPLETE)).unwrap();
    let error = scene.part.prepare().unwrap_err();
    assert!(
        error.contains("complete exists and cannot be removed"),
        "{error}"
    );
}

#[test]
fn no_link_below_the_directory_is_followed() {
    let scene = Scene::new();
    let elsewhere = scene.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::create_dir_all(&scene.part.directory).unwrap();
    let number = scene.part.directory.join("3");
    symlink(&elsewhere, &number).unwrap();
    let error = scene.part.prepare().unwrap_err();
    assert!(error.contains("links are not followed"), "{error}");
    assert!(scene.part.read_state().is_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    std::fs::remove_file(&number).unwrap();
    scene.part.prepare().unwrap();
    std::fs::write(elsewhere.join("complete"), "3").unwrap();
    symlink(elsewhere.join("complete"), scene.part.path().join(COMPLETE)).unwrap();
    assert!(scene.obstacle().contains("links are not followed"));
    // The request is not written through a link either.
    let at = scene.part.directory.join("request.rank-1");
    symlink(elsewhere.join("stolen"), &at).unwrap();
    symlink(
        elsewhere.join("stolen"),
        scene.part.directory.join(".request.rank-1.new"),
    )
    .unwrap();
    scene.part.request(&at, 1).unwrap();
    assert!(!elsewhere.join("stolen").exists());
    assert!(at.symlink_metadata().unwrap().is_file());
}

#[test]
fn the_directory_itself_may_be_reached_by_a_link() {
    let scene = Scene::new();
    let real = scene.folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir_all(scene.part.directory.parent().unwrap()).unwrap();
    symlink(&real, &scene.part.directory).unwrap();
    scene.part.prepare().unwrap();
    assert!(real.join("3/rank-1").is_dir());
}

#[test]
fn pipe_in_place_of_file_does_not_block() {
    let scene = Scene::new();
    scene.part.prepare().unwrap();
    let pipe = scene.part.path().join(COMPLETE);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(scene.obstacle().contains("it is not a regular file"));
}

#[test]
fn ignores_foreign_folders() {
    let mut scene = Scene::new();
    scene.part.prepare().unwrap();
    scene.part.uid += 1;
    let error = scene.part.prepare().unwrap_err();
    assert!(error.contains("belongs to uid"), "{error}");
}

#[test]
fn its_size_is_that_of_its_files_and_not_of_what_they_lead_to() {
    let scene = Scene::new();
    assert_eq!(scene.part.bytes(), None);
    scene.part.prepare().unwrap();
    scene.write("state", &"x".repeat(1000));
    std::fs::create_dir(scene.part.path().join("more")).unwrap();
    scene.write("more/state", "four");
    symlink("/proc", scene.part.path().join("link")).unwrap();
    assert_eq!(scene.part.bytes(), Some(1004));
}
