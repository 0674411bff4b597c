//! A coverage-guided fuzzer that needs nothing but stable Rust: a loop, LLVM's counters, and a worker process that may die.

mod coverage;
mod drive;
mod limits;
mod mutate;
mod targets;

use coverage::Map;
use cpu_time::ProcessTime;
use lexopt::prelude::*;
use mutate::Rng;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

fn main() {
    if let Err(e) = run() {
        eprintln!("fuzz: {e}");
        exit(2);
    }
}

type Any<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    words: Vec<String>,
    seeds: Vec<PathBuf>,
    worker: Option<PathBuf>,
    seed: u64,
}

fn run() -> Any<()> {
    let mut options = Options {
        words: Vec::new(),
        seeds: Vec::new(),
        worker: None,
        seed: std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("seeds") => options.seeds.push(parser.value()?.into()),
            Long("worker") => options.worker = Some(parser.value()?.into()),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Value(word) => options.words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match &words[..] {
        ["replay", files @ ..] => files.iter().try_for_each(|f| replay(Path::new(f))),
        ["minimize", name] => minimize(find(name)?, root, &options.seeds),
        [name, seconds] => {
            let time = Duration::from_secs(seconds.parse()?);
            if let Some(scratch) = &options.worker {
                return work(find(name)?, root, scratch, &options, time);
            }
            let chosen = match *name {
                "all" => TARGETS.iter().collect(),
                name => vec![find(name)?],
            };
            let mut findings = 0;
            for target in chosen {
                findings += supervise(target, root, &options, time)?;
            }
            if findings > 0 {
                Err(format!(
                    "{findings} findings, in {}",
                    root.join("findings").display()
                )
                .into())
            } else {
                Ok(())
            }
        }
        _ => Err("usage: fuzz TARGET|all SECONDS | minimize TARGET | replay FILE...".into()),
    }
}

fn find(name: &str) -> Any<&'static Target> {
    let target = TARGETS.iter().find(|t| t.name == name);
    target.ok_or_else(|| format!("no target '{name}'").into())
}

/// Runs workers until the time is over, and keeps what killed them.
fn supervise(target: &Target, root: &Path, options: &Options, time: Duration) -> Any<u32> {
    let scratch = scratch(target)?;
    let (start, mut findings) = (Instant::now(), 0u32);
    let mut seed = options.seed;
    while let Some(left) = time
        .checked_sub(start.elapsed())
        .filter(|t| t.as_secs() > 0)
    {
        seed = seed.wrapping_add(1);
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(target.name).arg(left.as_secs().to_string());
        command
            .arg("--worker")
            .arg(&scratch)
            .arg("--seed")
            .arg(seed.to_string());
        for folder in &options.seeds {
            command.arg("--seeds").arg(folder);
        }
        let status = command.status()?;
        if status.success() {
            break;
        }
        findings += 1;
        let input = current(&scratch)?;
        let name = format!("{}-{:08x}", target.name, crc32fast::hash(&input));
        let folder = root.join("findings");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(&name), &input)?;
        eprintln!("{}: FOUND findings/{name}: {status}", target.name);
        if findings >= 20 {
            eprintln!("{}: enough", target.name);
            break;
        }
    }
    let _ = fs::remove_dir_all(&scratch);
    Ok(findings)
}

/// A folder of this process's own, in memory where there is such a disk.
fn scratch(target: &Target) -> Any<PathBuf> {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() {
        base.to_owned()
    } else {
        std::env::temp_dir()
    };
    let folder = base.join(format!(
        "torchlike-fuzz-{}-{}",
        target.name,
        std::process::id()
    ));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The input that a worker had when it died: its length, and itself.
fn current(scratch: &Path) -> Any<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(scratch.join("current"))?.read_to_end(&mut bytes)?;
    let length = u64::from_le_bytes(bytes.get(..8).ok_or("no input")?.try_into()?);
    Ok(bytes
        .get(8..8 + length as usize)
        .ok_or("no input")?
        .to_vec())
}

/// Shards for the index to point to.
fn shards(scratch: &Path) -> Any<()> {
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(&[0; 8]);
    fs::write(scratch.join("a.safetensors"), &file)?;
    fs::write(scratch.join("model-00001-of-00002.safetensors"), &file)?;
    let pickle = b"\x80\x02}X\x01\0\0\0yctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQK\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.";
    let zip = drive::zip_of(&[
        ("a/data.pkl", pickle),
        ("a/data/0", &[0; 8]),
        ("a/version", b"3\n"),
    ]);
    fs::write(scratch.join("b.pt"), &zip)?;
    fs::write(scratch.join("model-00002-of-00002.safetensors"), &file)?;
    Ok(())
}

/// One input.
struct Case {
    data: Vec<u8>,
    /// How often it was changed.
    used: u32,
}

fn packed(target: &Target, root: &Path) -> PathBuf {
    root.join("corpus").join(format!("{}.gz", target.name))
}

fn folders(root: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = vec![root.join("../tests/data")];
    folders.extend_from_slice(more);
    folders
}

/// A case of the corpus is an input as it is, whatever files it is found in elsewhere.
fn inputs(target: &Target, root: &Path, more: &[PathBuf]) -> Vec<Vec<u8>> {
    let mut inputs = targets::seeds(target, &folders(root, more));
    if let Ok(packed) = fs::read(packed(target, root)) {
        inputs.extend(drive::unpack(&packed));
    }
    let files = fs::read_dir(root.join("found").join(target.name));
    for entry in files.into_iter().flatten().flatten() {
        inputs.extend(fs::read(entry.path()));
    }
    inputs.sort();
    inputs.dedup();
    inputs.sort_by_key(Vec::len);
    inputs
}

fn work(
    target: &Target,
    root: &Path,
    scratch: &Path,
    options: &Options,
    time: Duration,
) -> Any<()> {
    limits::watch();
    shards(scratch)?;
    let mut map = Map::new();
    let mut current = File::create(scratch.join("current"))?;
    let mut run = |data: &[u8], map: &mut Map| -> Any<usize> {
        current.seek(SeekFrom::Start(0))?;
        current.write_all(&[&(data.len() as u64).to_le_bytes()[..], data].concat())?;
        map.reset();
        limits::begin();
        (target.run)(data, scratch);
        limits::end();
        Ok(map.new_reached())
    };
    let mut cases = Vec::new();
    for data in inputs(target, root, &options.seeds) {
        if run(&data, &mut map)? > 0 || !map.is_live() {
            cases.push(Case { data, used: 0 });
        }
    }
    if cases.is_empty() {
        cases.push(Case {
            data: target.words.concat(),
            used: 0,
        });
    }
    let found = root.join("found").join(target.name);
    fs::create_dir_all(&found)?;
    let mut others: Vec<Vec<u8>> = cases.iter().map(|c| c.data.clone()).collect();
    let mut known: HashSet<u32> = HashSet::new();
    let mut rng = Rng::new(options.seed);
    let (start, mut runs, mut said) = (ProcessTime::now(), 0u64, Instant::now());
    let say = |runs: u64, cases: usize, reached: usize| {
        let seconds = start.elapsed().as_secs_f64();
        let rate = runs as f64 / seconds.max(1e-9);
        eprintln!(
            "{}: {seconds:.0} s, {runs} runs, {rate:.0}/s, {cases} cases, {reached} places",
            target.name
        );
    };
    while start.elapsed() < time {
        // Of two, the one that was changed less often; new ones are tried first that way.
        let (a, b) = (rng.below(cases.len()), rng.below(cases.len()));
        let i = if cases[a].used <= cases[b].used { a } else { b };
        cases[i].used += 1;
        let base = cases[i].data.clone();
        let pairs = coverage::compared_pairs();
        for _ in 0..16 {
            let mut data = base.clone();
            target.mutate(&mut rng, &mut data, &others, pairs.clone());
            runs += 1;
            if run(&data, &mut map)? > 0 && known.insert(crc32fast::hash(&data)) {
                fs::write(found.join(format!("{:08x}", crc32fast::hash(&data))), &data)?;
                others.push(data.clone());
                cases.push(Case { data, used: 0 });
            }
        }
        if said.elapsed() > Duration::from_secs(60) {
            say(runs, cases.len(), map.reached());
            said = Instant::now();
        }
    }
    say(runs, cases.len(), map.reached());
    Ok(())
}

/// Runs files again, telling which.
fn replay(file: &Path) -> Any<()> {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let parent = file
        .parent()
        .and_then(Path::file_name)
        .and_then(|n| n.to_str())
        .unwrap_or("");
    let target = TARGETS
        .iter()
        .find(|t| name.starts_with(t.name) || parent == t.name)
        .ok_or("the name or folder of the file must begin with that of a target")?;
    let scratch = scratch(target)?;
    shards(&scratch)?;
    eprintln!("{}", file.display());
    limits::watch();
    limits::begin();
    (target.run)(&fs::read(file)?, &scratch);
    eprintln!("  done, at most {} bytes at a time", limits::end());
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// Keeps the fewest and shortest inputs that reach every place, in `corpus`.
fn minimize(target: &Target, root: &Path, more: &[PathBuf]) -> Any<()> {
    let scratch = scratch(target)?;
    shards(&scratch)?;
    let mut map = Map::new();
    if !map.is_live() {
        return Err("this build has no counters; use run.sh".into());
    }
    let all = inputs(target, root, more);
    map.counts = false;
    let mut kept = Vec::new();
    for data in &all {
        map.reset();
        (target.run)(data, &scratch);
        if map.new_reached() > 0 {
            kept.push(data);
        }
    }
    // Backwards, what later ones reach as well goes.
    let mut map = Map::new();
    map.counts = false;
    let mut least = Vec::new();
    for data in kept.iter().rev() {
        map.reset();
        (target.run)(data, &scratch);
        if map.new_reached() > 0 {
            least.push(*data);
        }
    }
    fs::create_dir_all(root.join("corpus"))?;
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for data in &least {
        file.write_all(&(data.len() as u32).to_le_bytes())?;
        file.write_all(data)?;
    }
    let file = file.finish()?;
    let bytes = file.len();
    fs::write(packed(target, root), file)?;
    eprintln!(
        "{}: {} of {} inputs, {bytes} bytes, {} places",
        target.name,
        least.len(),
        all.len(),
        map.reached()
    );
    fs::remove_dir_all(&scratch)?;
    Ok(())
}
