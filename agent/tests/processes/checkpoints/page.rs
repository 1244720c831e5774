//! Programs that `CHECKPOINTS.md` shows to users.

use super::fixture::*;

/// Program of the user page in this language.
fn shown(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("CHECKPOINTS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Two checkpoints of the program, each with a later state.
async fn writes_twice(scene: &Scene, key: AttemptKey) -> u64 {
    let mut states = Vec::new();
    for number in 1..=2 {
        let order = scene.order(number, 20_000);
        let outcome = scene.outcome(key, &order).await;
        let errors = std::fs::read_to_string(scene.bench.attempt_dir(key).join("stderr"));
        assert!(outcome.is_written(), "{outcome:?}: {}", errors.unwrap());
        states.push(scene.state(&order));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(states[0] < states[1], "{states:?}");
    states[1]
}

#[tokio::test]
async fn documented_script_works() {
    let scene = Scene::new();
    let mut script = launch(key(1), &[]);
    script.workload.script = Some(shown("sh"));
    scene
        .launch(script.clone(), scene.setup(CheckpointMode::Signal))
        .await;
    let state = writes_twice(&scene, key(1)).await;
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    script.key = key(2);
    script
        .workload
        .env
        .insert("STEPS".to_owned(), (state + 1).to_string());
    let restore = Some(Restore {
        number: 2,
        directory: scene.directory.to_str().unwrap().to_owned(),
    });
    let setup = CheckpointSetup {
        restore,
        ..scene.setup(CheckpointMode::Signal)
    };
    scene.launch(script, setup).await;
    assert_eq!(
        scene.bench.ledger.end(key(2)).await,
        RankExit::Exited { code: 0 }
    );
    scene.executor.stop().await;
}

#[tokio::test]
async fn documented_c_program_works() {
    let scene = Scene::new();
    let (source, program) = (scene.bench.file("counts.c"), scene.bench.file("counts"));
    std::fs::write(&source, shown("c")).unwrap();
    let mut compiler = std::process::Command::new("cc");
    let built = compiler
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &source]);
    assert!(built.status().unwrap().success());
    let job = launch(key(1), &[program.to_str().unwrap()]);
    scene
        .launch(job, scene.setup(CheckpointMode::SharedMemory))
        .await;
    writes_twice(&scene, key(1)).await;
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}

/// Python interpreter with `grpc` and `grpc_tools`: `LATTICE_PEER_PYTHON`, else `python3`.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("LATTICE_PEER_PYTHON");
    let python: PathBuf = python.map_or_else(|| "python3".into(), PathBuf::from);
    let import = ["-c", "import grpc, grpc_tools"];
    let tried = std::process::Command::new(&python).args(import).output();
    let has_it = tried.is_ok_and(|tried| tried.status.success());
    if !has_it {
        eprintln!(
            "SKIPPED: {} has no grpcio and grpcio-tools",
            python.display()
        );
    }
    has_it.then_some(python)
}

#[tokio::test]
async fn documented_python_program_works() {
    let Some(python) = python() else {
        return;
    };
    let scene = Scene::new();
    let folder = scene.bench.file("python");
    std::fs::create_dir(&folder).unwrap();
    let out = |kind: &str| format!("--{kind}_out={}", folder.display());
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiler = std::process::Command::new(&python);
    let made = compiler
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&proto)
        .args([out("python"), out("grpc_python")])
        .arg("lattice/checkpoint/v1/checkpoint.proto");
    assert!(made.status().unwrap().success());
    let program = folder.join("counts.py");
    std::fs::write(&program, shown("python")).unwrap();
    let (python, program) = (python.to_str().unwrap(), program.to_str().unwrap());
    let mut job = launch(key(1), &[python, "-B", program]);
    job.workload
        .env
        .insert("PYTHONPATH".to_owned(), folder.display().to_string());
    scene
        .launch(job, scene.setup(CheckpointMode::Callback))
        .await;
    writes_twice(&scene, key(1)).await;
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}
