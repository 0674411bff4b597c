use super::*;
use crate::ErrorKind;

fn tree(data: &[u8]) -> Tree {
    read(data).unwrap_or_else(|e| panic!("{data:?}: {e}")).0
}

fn refused(data: &[u8], words: &str) {
    let e = read(data)
        .err()
        .unwrap_or_else(|| panic!("{data:?} was accepted"));
    assert_eq!(e.kind(), ErrorKind::Unpickling);
    assert!(e.message().contains(words), "{data:?}: {e}");
}

#[test]
fn small_values_of_every_protocol() {
    for (data, want) in [
        (&b"N."[..], Value::None),
        (b"\x88.", Value::Bool(true)),
        (b"I01\n.", Value::Bool(true)),
        (b"I-5\n.", Value::Int(-5)),
        (b"L12L\n.", Value::Int(12)),
        (b"K\xff.", Value::Int(255)),
        (b"M\x00\x01.", Value::Int(256)),
        (b"J\xfe\xff\xff\xff.", Value::Int(-2)),
        (b"\x8a\x00.", Value::Int(0)),
        (b"\x8a\x01\xff.", Value::Int(-1)),
        (b"\x8a\x02\xff\x00.", Value::Int(255)),
        (b"\x8b\x01\x00\x00\x00\x07.", Value::Int(7)),
        (b"F1.5\n.", Value::Float(1.5)),
        (b"G\x3f\xf8\x00\x00\x00\x00\x00\x00.", Value::Float(1.5)),
        (b"K\x01K\x020.", Value::Int(1)),
        (b"K\x01(K\x02K\x031.", Value::Int(1)),
        (
            b"\x80\x05\x95\x02\x00\x00\x00\x00\x00\x00\x00K\x01.",
            Value::Int(1),
        ),
    ] {
        assert_eq!(tree(data).root, want, "{data:?}");
    }
}

#[test]
fn strings_and_bytes() {
    for data in [
        &b"X\x02\x00\x00\x00ab."[..],
        b"\x8c\x02ab.",
        b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00ab.",
        b"Vab\n.",
        b"S'ab'\n.",
        b"U\x02ab.",
        b"T\x02\x00\x00\x00ab.",
    ] {
        let t = tree(data);
        assert_eq!(t.str(t.root), Some("ab"), "{data:?}");
    }
    for data in [
        &b"C\x02\x00\xff."[..],
        b"B\x02\x00\x00\x00\x00\xff.",
        b"\x96\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff.",
        b"U\x02\x00\xff.",
    ] {
        let t = tree(data);
        assert_eq!(t.bytes(t.root), Some(&b"\x00\xff"[..]), "{data:?}");
    }
    let t = tree(b"\x8a\x09\0\0\0\0\0\0\0\0\x01.");
    assert!(matches!(t.object(t.root), Some(Object::BigInt(_))));
}

#[test]
fn identity_and_cycles_are_kept() {
    let t = tree(b"]q\x00(h\x00h\x00e.");
    assert_eq!(t.items(t.root), Some(&[t.root, t.root][..]));
    let t = tree(b"]\x94]\x94h\x00ah\x01\x86.");
    let Some(&[list, same]) = t.tuple(t.root) else {
        panic!("a pair")
    };
    assert_eq!(list, same);
    // Small values are remembered too, and an entry can be replaced by one of the other kind.
    let t = tree(b"]q\0K\x05q\x01K\x06q\0h\0h\x01]q\x01h\x01\x87.");
    let items = t.tuple(t.root).unwrap();
    assert!(
        items[0] == Value::Int(5) && items[1] == items[2] && matches!(items[1], Value::Object(_)),
        "{items:?}"
    );
    let t = tree(b"K\x05\x94K\x06\x94h\0h\x01\x86.");
    assert_eq!(t.tuple(t.root), Some(&[Value::Int(5), Value::Int(6)][..]));
    let t = tree(b"}K\x01r\x00\x00\x00\xf0j\x00\x00\x00\xf0s.");
    assert_eq!(t.pairs(t.root), Some(&[(Value::Int(1), Value::Int(1))][..]));
}

#[test]
fn calls_are_recorded_and_not_made() {
    let t = tree(b"cposix\nsystem\n(X\x04\x00\x00\x00truetR.");
    let call = t.call(t.root).unwrap();
    assert_eq!(t.global(call.func).unwrap().to_string(), "posix.system");
    assert_eq!(t.tuple(call.args).map(<[Value]>::len), Some(1));
    let t = tree(b"\x8c\x01m\x8c\x01C\x93)\x81}b.");
    let call = t.call(t.root).unwrap();
    assert_eq!(
        (call.kind, call.extra.as_ref().unwrap().states.len()),
        (CallKind::New, 1)
    );
    let t = tree(b"(im\nC\n.");
    assert_eq!(
        t.global(t.call(t.root).unwrap().func).unwrap().to_string(),
        "m.C"
    );
    let t = tree(b"(c__builtin__\nxrange\nK\x05o.");
    assert_eq!(
        t.global(t.call(t.root).unwrap().func).unwrap().to_string(),
        "builtins.range"
    );
    let t = tree(b"cm\na\ncm\na\n\x86.");
    assert_eq!(
        (t.globals.len(), t.items(t.root).map(|i| i[0] == i[1])),
        (1, Some(true))
    );
}

#[test]
fn damage_is_refused_with_its_offset() {
    refused(b"", "without STOP");
    refused(b"K\x01", "without STOP");
    refused(b".", "no value");
    refused(b"K\x01(.", "no value");
    refused(b"(0.", "no value");
    refused(b"R.", "no value");
    refused(b"K\x01\x86.", "more values");
    refused(b"t.", "no mark");
    refused(b"K\x01K\x02a.", "no list");
    refused(b"](K\x01u.", "without a value");
    refused(b"]K\x01K\x02s.", "no dictionary");
    refused(b"K\x01)R.", "no function");
    refused(b"cm\na\n]R.", "not a tuple");
    refused(b"]Nb.", "takes none");
    refused(b"h\x05.", "never stored");
    refused(b"\x80\x06.", "protocol 6");
    refused(b"\x82\x01.", "extension");
    refused(b"\x97.", "out-of-band");
    refused(b"\xfe.", "unknown opcode 0xfe");
    refused(b"X\xff\xff\xff\xffab.", "bytes are due");
    refused(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "bytes are due");
    refused(b"\x8b\xff\xff\xff\xff.", "integer of -1 bytes");
    refused(b"\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "frame");
    refused(b"\x8c\x01\xff.", "not UTF-8");
    refused(b"c\n\n.", "empty");
    refused(
        &[b"c", &[b'a'; 600][..], b"\nb\n."].concat(),
        "more than 512",
    );
    refused(b"cm", "line without an end");
    let e = read(b"K\x01K\x02\xfe").err().unwrap();
    assert!(e.message().contains("byte 4 of 5"), "{e}");
}

#[test]
fn depth_costs_no_stack() {
    let deep: Vec<u8> = [&[b'('; 300_000][..], &[b't'; 300_000], b"."].concat();
    let t = tree(&deep);
    assert_eq!(t.objects.len(), 300_000);
    drop(t);
    let lists: Vec<u8> = [&[b']'; 300_000][..], &[b'a'; 299_999], b"."].concat();
    assert_eq!(tree(&lists).root, Value::Object(Id(0)));
}

/// Two tensors, their tuples and themselves put into the memo or not; the second one again, from there.
fn two_tensors(remembered: bool) -> Vec<u8> {
    let mut p = b"\x80\x02(ctorch._utils\n_rebuild_tensor_v2\nq\x000X\x07\0\0\0storageq\x010ctorch\nFloatStorage\nq\x020X\x03\0\0\0cpuq\x030ccollections\nOrderedDict\nq\x040".to_vec();
    let mut next = 5;
    let mut put = |p: &mut Vec<u8>, always: bool| {
        if remembered || always {
            p.extend([b'q', next]);
            next += 1;
        }
        next - 1
    };
    let mut last = 0;
    for key in [b'0', b'1'] {
        p.extend(b"h\0((h\x01h\x02X\x01\0\0\0");
        p.push(key);
        put(&mut p, false);
        p.extend(b"h\x03K\x08t");
        put(&mut p, false);
        p.extend(b"QK\0K\x08\x85");
        put(&mut p, false);
        p.extend(b"K\x01\x85");
        put(&mut p, false);
        p.extend(b"\x89h\x04)R");
        put(&mut p, false);
        p.extend(b"t");
        put(&mut p, false);
        p.extend(b"R");
        last = put(&mut p, key == b'1');
    }
    p.extend([b'h', last]);
    p.extend(b"t.");
    p
}

#[test]
fn tensors_are_read_in_one_step_whatever_is_remembered() {
    for remembered in [false, true] {
        let data = two_tensors(remembered);
        let (t, end) = read_tensors(&data).unwrap();
        assert_eq!((t.protos.len(), end), (2, data.len()));
        let items = t.items(t.root).unwrap();
        assert_eq!(items.len(), 3);
        assert_eq!(items[1], items[2]);
        assert_ne!(items[0], items[1]);
        // The ordinary way ends at the same place.
        let (plain, end) = read(&data).unwrap();
        assert_eq!((plain.protos.len(), end), (0, data.len()));
    }
}
