use super::*;
use crate::DType;
use zip_of::zip_of;

#[path = "../../tests/support/zip_of.rs"]
mod zip_of;

fn archive_of(pickle: &[u8], storage: &[u8]) -> Result<Archive> {
    Archive::from_bytes(zip_of(&[("a/data.pkl", pickle), ("a/data/0", storage)]))
}

fn refused(pickle: &[u8], storage: &[u8], words: &str) {
    let e = archive_of(pickle, storage)
        .err()
        .unwrap_or_else(|| panic!("'{words}' was accepted"));
    assert!(e.message().contains(words), "{e}");
}

/// A float tensor of the given layout over a storage of `numel` elements.
fn tensor(numel: u8, offset: &[u8], size: &[u8], stride: &[u8]) -> Vec<u8> {
    let mut p = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK".to_vec();
    p.push(numel);
    p.extend_from_slice(b"tQ");
    p.extend_from_slice(offset);
    p.extend_from_slice(size);
    p.extend_from_slice(stride);
    p.extend_from_slice(b"\x89ccollections\nOrderedDict\n)RtR.");
    p
}

#[test]
fn tensors_lie_within_their_storage() {
    let one = tensor(4, b"K\0", b"K\x02K\x02\x86", b"K\x02K\x01\x86");
    let archive = archive_of(&one, &[0; 16]).unwrap();
    let t = archive.tree().tensor(archive.tree().root).unwrap();
    assert_eq!(
        (t.shape(), t.stride(), t.numel()),
        (&[2, 2][..], &[2, 1][..], 4)
    );
    refused(&one, &[0; 15], "has 15");
    refused(
        &tensor(4, b"K\x01", b"K\x02K\x02\x86", b"K\x02K\x01\x86"),
        &[0; 16],
        "needs 20 bytes",
    );
    refused(
        &tensor(4, b"K\0", b"K\x02K\x02\x86", b"K\x03K\x01\x86"),
        &[0; 16],
        "needs 20 bytes",
    );
    refused(
        &tensor(4, b"K\0", b"K\x02\x85", b"K\x01K\x01\x86"),
        &[0; 16],
        "impossible",
    );
    refused(
        &tensor(4, b"J\xff\xff\xff\xff", b"K\x02\x85", b"K\x01\x85"),
        &[0; 16],
        "offset",
    );
    refused(
        &tensor(4, b"K\0", b"K\x02\x85", b"J\xff\xff\xff\xff\x85"),
        &[0; 16],
        "none negative",
    );
    let huge = b"\x8a\x08\0\0\0\0\0\0\0\x40";
    refused(
        &tensor(4, b"K\0", &[&huge[..], b"\x85"].concat(), b"K\x01\x85"),
        &[0; 16],
        "impossible",
    );
    refused(
        &tensor(
            4,
            b"K\0",
            &[&huge[..], huge, b"\x86"].concat(),
            b"K\0K\0\x86",
        ),
        &[0; 16],
        "impossible",
    );
    // No element: nothing is read, whatever the other sizes.
    archive_of(
        &tensor(
            4,
            b"K\0",
            &[&huge[..], b"K\0\x86"].concat(),
            b"K\x01K\x01\x86",
        ),
        &[0; 16],
    )
    .unwrap();
}

#[test]
fn depth_and_keys_are_limited() {
    let nest = |n: usize| [&vec![b']'; n][..], &vec![b'a'; n - 1], b"."].concat();
    archive_of(&nest(1000), b"").unwrap();
    refused(&nest(1001), b"", "more than 1000 levels");
    // The same depth by way of a list that holds every level, which a walk in order meets as shallow ones.
    let mut ladder = b"(]q\0".to_vec();
    for _ in 0..1500 {
        ladder.extend_from_slice(b"]h\0aq\0");
    }
    ladder.extend_from_slice(b"l.");
    refused(&ladder, b"", "more than 1000 levels");
    refused(b"}]K\x01s.", b"", "used as a key");
    refused(b"}]\x85K\x01s.", b"", "used as a key");
    let mut laughs = b"}K\x01\x85".to_vec();
    laughs.extend_from_slice(&b"2\x86".repeat(40));
    laughs.extend_from_slice(b"K\x01s.");
    refused(&laughs, b"", "parts");
}

#[test]
fn sharing_does_not_multiply_memory() {
    // One dictionary of 1000 entries, copied by ten thousand counters.
    let mut p = b"(}q\0(".to_vec();
    for i in 0..1000u16 {
        p.push(b'M');
        p.extend_from_slice(&i.to_le_bytes());
        p.push(b'N');
    }
    p.extend_from_slice(b"uccollections\nCounter\nq\x01");
    p.extend_from_slice(&b"h\x01h\0\x85R".repeat(10_000));
    p.extend_from_slice(b"t.");
    refused(&p, b"", "over and over");
}

#[test]
fn zip_directories_are_proved() {
    let good = zip_of(&[("a/data.pkl", b"N."), ("a/data/0", b"xx")]);
    Archive::from_bytes(good.clone()).unwrap();
    let e = Archive::from_bytes(zip_of(&[("a/data.pkl", b"N."), ("a/data.pkl", b"N.")]))
        .err()
        .unwrap();
    assert!(e.message().contains("twice"), "{e}");
    let e = Archive::from_bytes(zip_of(&[("a/other", b"N.")]))
        .err()
        .unwrap();
    assert!(e.message().contains("without data.pkl"), "{e}");
    // The directory's second entry laid over the first one's data.
    let mut overlap = good.clone();
    let at = overlap
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .unwrap();
    overlap[at + 42..at + 46].copy_from_slice(&0u32.to_le_bytes());
    assert!(Archive::from_bytes(overlap).is_err());
    let mut crc = good.clone();
    let at = crc.windows(2).position(|w| w == b"N.").unwrap();
    crc[at] = b'.';
    let e = Archive::from_bytes(crc).err().unwrap();
    assert!(e.message().contains("checksum"), "{e}");
    let mut trailing = good;
    trailing.push(0);
    assert!(Archive::from_bytes(trailing).is_err());
}

#[test]
fn verify_names_the_damaged_tensor() {
    let good = zip_of(&[
        ("a/data.pkl", &tensor(1, b"K\0", b"K\x01\x85", b"K\x01\x85")),
        ("a/data/0", b"wxyz"),
    ]);
    Archive::from_bytes(good.clone()).unwrap().verify().unwrap();
    let mut bad = good;
    let at = bad.windows(4).position(|w| w == b"wxyz").unwrap();
    bad[at] = b'!';
    let e = Archive::from_bytes(bad).unwrap().verify().unwrap_err();
    assert!(
        e.message().contains("storage '0' of tensor '' is damaged"),
        "{e}"
    );
}

#[test]
fn plain_values_survive_being_written() {
    let mut tree = Tree::new();
    let (a, b) = (
        tree.push_str("a"),
        tree.push_bytes(Object::Bytes, &[0, 255, b'\n']),
    );
    let inner = tree.push_list(
        Object::List,
        vec![
            Value::Int(i64::MIN),
            Value::Int(70_000),
            Value::Float(-0.0),
            b,
        ],
    );
    let big = tree.push_bytes(Object::BigInt, &[0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let tuple = tree.push_items(Object::Tuple, &[inner, big, Value::None, Value::Bool(true)]);
    let size = tree.push_items(Object::Size, &[Value::Int(2), Value::Int(3)]);
    let dict = tree.push_dict(
        Object::OrderedDict,
        vec![(a, tuple), (Value::Int(1), inner), (Value::Int(2), size)],
    );
    let meta = tree.push_dict(Object::Dict, vec![(a, dict)]);
    let (Value::Object(id), Value::Object(list)) = (dict, inner) else {
        panic!("objects")
    };
    tree.attrs.insert(id, meta);
    // A list in a tuple in that list.
    let Object::List(n) = tree.objects[list.0 as usize] else {
        panic!("a list")
    };
    tree.lists[n as usize].push(tuple);
    tree.root = dict;
    let archive = Archive::from_bytes(write::to_vec(&tree, &mut |_, _| Ok(())).unwrap()).unwrap();
    let t = archive.tree();
    let pairs = t.pairs(t.root).unwrap();
    assert_eq!((t.str(pairs[0].0), pairs.len()), (Some("a"), 3));
    let items = t.tuple(pairs[0].1).unwrap();
    assert_eq!(items[0], pairs[1].1, "one list in two places");
    assert_eq!(t.bytes(items[1]), Some(&[0, 0, 0, 0, 0, 0, 0, 0, 1][..]));
    let list = t.items(items[0]).unwrap();
    assert_eq!(list[..2], [Value::Int(i64::MIN), Value::Int(70_000)]);
    assert!(matches!(list[2], Value::Float(f) if f == 0.0 && f.is_sign_negative()));
    assert_eq!(t.bytes(list[3]), Some(&[0, 255, b'\n'][..]));
    assert_eq!(list[4], pairs[0].1, "the cycle");
    assert!(matches!(t.object(pairs[2].1), Some(Object::Size(_))));
    let Value::Object(root) = t.root else {
        panic!("an object")
    };
    assert_eq!(t.pairs(t.attrs[&root]).unwrap()[0].1, t.root);
}

#[test]
fn one_storage_of_two_types_is_written_untyped() {
    let mut tree = Tree::new();
    let location = std::sync::Arc::from("cpu");
    let storage = tree.push_storage(StorageRef {
        key: "".into(),
        dtype: None,
        location,
        nbytes: 8,
        data: Data::Given,
        crc: None,
    });
    let float = tree.push_tensor(TensorRef::new(storage, DType::F32, &[2], &[1], 0));
    let mut parameter = TensorRef::new(storage, DType::C64, &[1], &[1], 0);
    (parameter.class, parameter.requires_grad, parameter.conj) =
        (TensorClass::Parameter, true, true);
    let complex = tree.push_tensor(parameter);
    tree.root = tree.push_items(Object::Tuple, &[float, complex, float]);
    let bytes = write::to_vec(&tree, &mut |_, sink| {
        sink(&[1, 2, 3, 4]).and_then(|()| sink(&[5, 6, 7, 8]))
    })
    .unwrap();
    let archive = Archive::from_bytes(bytes).unwrap();
    let tensors = archive.tensors();
    assert_eq!(
        tensors.iter().map(|t| t.tensor.dtype).collect::<Vec<_>>(),
        [DType::F32, DType::C64, DType::F32]
    );
    assert!(
        tensors[1].tensor.requires_grad
            && tensors[1].tensor.conj
            && tensors[1].tensor.class == TensorClass::Parameter
    );
    assert_eq!(archive.ties(), [["0", "1", "2"]]);
    assert_eq!(
        archive.totals(),
        Totals {
            names: 3,
            tensors: 2,
            elements: 3,
            storages: 1,
            bytes: 8
        }
    );
    assert_eq!(
        &*archive.read_storage(tensors[0].storage).unwrap(),
        &[1, 2, 3, 4, 5, 6, 7, 8]
    );
}

#[test]
fn writing_deep_trees_needs_little_stack() {
    let nested = |levels: usize| {
        let mut tree = Tree::new();
        for i in 0..levels {
            tree.root = match i % 3 {
                0 => tree.push_list(Object::List, vec![tree.root]),
                1 => tree.push_items(Object::Tuple, &[tree.root]),
                _ => tree.push_dict(Object::OrderedDict, vec![(Value::Int(0), tree.root)]),
            };
        }
        write::to_vec(&tree, &mut |_, _| Ok(()))
    };
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let (deep, deeper) = small
        .spawn(move || (nested(1000), nested(1001)))
        .unwrap()
        .join()
        .unwrap();
    Archive::from_bytes(deep.unwrap()).unwrap();
    assert!(
        deeper
            .unwrap_err()
            .message()
            .contains("more than 1000 levels")
    );
}

/// Reading a pickle in one step a tensor gives what reading it opcode by opcode gives.
#[test]
fn tensors_in_one_step_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ckpt/good");
    let mut compared = 0;
    for path in std::fs::read_dir(folder).unwrap() {
        let bytes = Bytes::map(&path.unwrap().path()).unwrap();
        let Ok(zip) = zip::Zip::open(bytes) else {
            continue;
        };
        let root = zip.name(0).split_once('/').unwrap().0.to_owned();
        let Some(entry) = zip.find(format!("{root}/data.pkl").as_bytes()) else {
            continue;
        };
        let data = torch_zip::read_pickle(&zip, entry).unwrap();
        let resolved = |tree: Result<(Tree, usize)>| {
            let mut tree = tree.unwrap().0;
            let mut finder = torch_zip::Finder::new(&zip, format!("{root}/data/"));
            rebuild::resolve(&mut tree, &mut |request, storages| {
                finder.find(request, storages)
            })
            .unwrap();
            tree
        };
        let (fast, slow) = (
            resolved(pickle::read_tensors(&data)),
            resolved(pickle::read(&data)),
        );
        let described = |tree: &Tree| -> Vec<String> {
            list::named_tensors(tree)
                .iter()
                .map(|t| {
                    let r = t.tensor;
                    format!(
                        "{} {} {:?} {:?} {} {} {:?} {}",
                        t.name,
                        r.dtype,
                        r.shape(),
                        r.stride(),
                        r.offset,
                        r.requires_grad,
                        r.class,
                        t.storage.key
                    )
                })
                .collect()
        };
        assert_eq!(described(&fast), described(&slow));
        compared += fast.protos.len();
    }
    assert!(compared > 20, "{compared} tensors in one step");
}
