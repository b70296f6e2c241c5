#!/usr/bin/env python3
"""Verifies a receipt log of AgentGate, a proof of a receipt or an export of a tenant's, offline and with the public key alone.

    python3 tools/verify.py PATH --vkey FILE [--anchor FILE] [--json]
    python3 tools/verify.py PROOF --vkey FILE --salt HEX --params FILE

A second verifier beside `agentgw receipts verify`: written from internal/receipts/FORMAT.md alone, in another language
and with another library for Ed25519, so that neither need be taken at its word. A section named here is one of FORMAT.md.
It reads from top to bottom: spelling, signatures, trees, the walk over the log, proofs, exports, the report.

Exit codes: 0 all holds up to the anchor; 1 something does not hold; 2 the key is not this log's, or a mistake in use;
3 cannot read; 4 holds as far as it can be checked, but that nothing is missing is not proven.

For Python 3.9 or newer. Memory does not grow with the log, apart from about a kilobyte for each tenant.
"""
import argparse
import base64
import hashlib
import hmac
import json
import mmap
import os
import re
import stat
import sys
import time
from collections import Counter, OrderedDict, defaultdict, namedtuple

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    print("verify.py: Ed25519 is missing. Debian: apt-get install python3-cryptography; elsewhere: pip install cryptography",
          file=sys.stderr)
    sys.exit(3)

MOST = 2**53 - 1    # the largest number in a log
LONGEST = 65_535    # bytes of a line without its LF
MOST_SIGNATURES = 100  # of an anchor
LOOK_BACK = 65_536  # closed receipts whose ids are remembered


class Fault(Exception):
    """Exit 1. Names the first entry that does not hold, and the last that may be it where several may."""

    def __init__(self, what, entry=None, last=None, place=None):
        super().__init__(what)
        self.entry, self.last, self.place = entry, last, place


class Broken(Fault):
    """A fault, or the beginning of a torn tail, if nothing that was signed stands behind it (section 5)."""


class Distrust(Exception):
    """Exit 2."""


class Unreadable(Exception):
    """Exit 3."""


# ---- Spelling (sections 2 and 3). A line has one spelling, so that an expression holds it and there is no need to parse
# ---- JSON; and two values are the same where their bytes are.

NUMBER = "(?:0|[1-9][0-9]{0,15})"
PLAIN = '[^"\\\\\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*'
ESCAPE = r'\\(?:["\\]|u(?:00[01][0-9a-f]|007f|00[89][0-9a-f]|200[b-f]|202[89a-e]|206[0-9a-f]|feff))'
INSIDE = f"{PLAIN}(?:{ESCAPE}{PLAIN})*"
TEXT = f'"{INSIDE}"'
TIME = r'"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"'

HEADER = re.compile(f'{{"segment":{{"v":1,"log":(?P<log>{TEXT}),"first":(?P<first>{NUMBER}),"vkey":(?P<vkey>{TEXT})}}}}')
BATCH = re.compile(f'{{"batch":{{"first":({NUMBER}),"count":({NUMBER}),"bytes":({NUMBER})}}}}')
CHECKPOINT = re.compile(r'\{"checkpoint":"((?:[^"\\\x00-\x1f\x7f]|\\["\\n])*)"\}')

KINDS = {"intent", "outcome", "refusal", "recovery", "key", "heads", "summary", "gap", "heartbeat", "seal", "pruned"}
DECISIONS = {"allowed", "refused"}
ENDINGS = {"complete", "client_cancelled", "slow_client", "upstream_aborted", "timeout", "revoked", "blocked", "budget",
           "panic", "shutdown", "outcome_unknown"}
MEASURED = {"in", "out", "queue_us", "upstream_us", "total_us"}  # always there in an outcome that is known
COUNTING = {"gap", "summary"}  # stand for attempts without records
MEMBERS = (  # those that may be left out, in their order
    ("tenant", TEXT), ("caller", TEXT), ("key", TEXT), ("principal", TEXT), ("chain", rf"\[{TEXT}(?:,{TEXT})*\]"),
    ("service", TEXT), ("action", TEXT), ("method", TEXT), ("params", f'{{"alg":{TEXT},"hash":{TEXT}(?:,"key":"(?!"){INSIDE}")?}}'),
    ("decision", TEXT), ("code", TEXT), ("limit", TEXT), ("status", NUMBER), ("in", NUMBER), ("out", NUMBER), ("messages", NUMBER),
    ("ending", TEXT), ("queue_us", NUMBER), ("upstream_us", NUMBER), ("total_us", NUMBER), ("request_id", TEXT),
    ("client_addr", TEXT), ("replica", TEXT),
    ("recovery", f'{{"file":{TEXT},"offset":(?P<offset>{NUMBER}),"bytes":(?P<bytes>{NUMBER}),"sha256":{TEXT},'
                 f'"kept":(?P<kept>{NUMBER})}}'),
    ("vkey", TEXT), ("heads", f'{{"count":(?P<count>{NUMBER}),"root":"(?P<root>{INSIDE})"}}'),
    ("pruned", f'{{"before":(?P<before>{NUMBER}),"sha256":"(?P<remains>{INSIDE})"}}'),
    ("from", TIME), ("to", TIME), ("attempts", NUMBER), ("reason", TEXT), ("interval", "true"), ("cut", "true"))
SPELLED = {"attempts": "count"}  # heads have a member of that name inside
NUMBERS = MEASURED | {"seq", "status", "messages", "offset", "bytes", "kept", "count", "before", "attempts"}
RECORD = re.compile(
    f'{{"v":1,"kind":"(?P<kind>{INSIDE})","id":(?P<id>{TEXT}),"t":(?P<t>{TIME}),"seq":(?P<seq>{NUMBER})'
    + "".join(f'(?:,"{SPELLED.get(name, name)}":(?P<{name}>{form}))?' for name, form in MEMBERS) + ',"tag":"[A-Za-z0-9_-]{21}[AQgw]"}')


def spelled(expression, line):
    """The match of an expression with a line whose LF is gone; None where it is not spelled so, or not in UTF-8."""
    try:
        return expression.fullmatch(line.decode())
    except UnicodeDecodeError:
        return None


def parse_record(line):
    """The members of a record as they are spelled, None for those that are left out."""
    match = spelled(RECORD, line)
    if not match:
        version = re.match(rb'\{"v":([0-9]+),', line)
        if version and version[1] != b"1":
            raise Broken(f"a record of version {version[1].decode()[:20]}: this verifier is too old for it")
        raise Broken("not a record in the spelling of version 1")
    r = match.groupdict()
    for name, known in (("kind", KINDS), ("decision", DECISIONS), ("ending", ENDINGS)):
        if r[name] is not None and r[name].strip('"') not in known:
            raise Broken(f"{name} {r[name]}: this verifier is too old for it")
    measured = r["kind"] == "outcome" and r["ending"] != '"outcome_unknown"'
    for name, _ in MEMBERS:
        if r[name] == '""' or r[name] == "0" and not (measured and name in MEASURED):
            raise Broken(f"{name} says nothing, and so does not stand there")
        if r[name] is None and measured and name in MEASURED:
            raise Broken(f"an outcome without {name}")
    if r["id"] == '""' or any(r[name] and int(r[name]) > MOST for name in NUMBERS):
        raise Broken("no id, or a number over 2^53-1")
    if not all(there_is(*map(int, re.findall("[0-9]+", r[name])[:6])) for name in ("t", "from", "to") if r[name]):
        raise Broken("a date or a time that there is not")
    if (r["kind"] == "heads") != (r["heads"] is not None):
        raise Broken("heads are of a record of that kind, and of no other")
    if (r["kind"] == "pruned") != (r["pruned"] is not None):
        raise Broken("what was removed is told by a record of that kind, and of no other")
    if any((r[name] is not None) != (r["kind"] in COUNTING) for name in ("from", "to", "attempts")):
        raise Broken("from, to and count are of a gap or a summary, which has them all, and of no other")
    if r["reason"] and r["kind"] not in COUNTING | {"refusal"}:
        raise Broken("a reason is of a gap, a summary or a refusal")
    return r


def there_is(year, month, day, hour, minute, second):
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= days[month - 1] and hour < 24 and minute < 60 and second < 60


# ---- Signatures (section 4). A checkpoint is a signed note of an origin, a size and a root.

BODY = re.compile(f"([^\n]*)\n({NUMBER})\n([A-Za-z0-9+/]{{43}}=)\n")
SIGNATURE = re.compile(r"— ([^\s\x00-\x1f+]+) ([A-Za-z0-9+/]+={0,2})\n")
Checkpoint = namedtuple("Checkpoint", "origin size root body signatures")


def parse_checkpoint(note):
    """What a note says, whoever signed it; None where it is no checkpoint."""
    body, gap, signatures = note.rpartition("\n\n")
    match = BODY.fullmatch(body + "\n") if gap else None
    root = match and unbase64(match[3])
    if not root or int(match[2]) > MOST or re.search(r"[^\n -\uffff\U00010000-\U0010ffff]", note):
        return None  # no signed note holds control characters
    return Checkpoint(match[1], int(match[2]), root, match[0].encode(), signatures)


def parse_checkpoint_line(line):
    match = spelled(CHECKPOINT, line)
    return match and parse_checkpoint(re.sub(r"\\(.)", lambda escaped: escaped[1].replace("n", "\n"), match[1]))


def unbase64(text):
    """The bytes of a text in base64; None unless it is their one spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw).decode() == text else None


class Key:
    """A verifier key: <origin>+<key hash>+<base64 of 0x01 and the public key>."""

    def __init__(self, text):
        match = re.fullmatch(r"(agentgate/[0-9a-f]{32})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})", text)
        self.raw = match and unbase64(match[3])
        if not self.raw or self.raw[0] != 1 or self.hash(match[1]).hex() != match[2]:
            raise Distrust("the verifier key is none: <origin>+<key hash>+<base64>")
        self.text, self.origin = text, match[1]
        self.public = Ed25519PublicKey.from_public_bytes(self.raw[1:])

    def hash(self, name):
        """The hash under a name: that of the log, or of a tenant's tree."""
        return sha256(name.encode(), b"\n", self.raw)[:4]

    def names(self, name, signature):
        """Reports whether a signature says that it is by this key, for the tree of that name."""
        raw = unbase64(signature)
        return raw is not None and raw[:4] == self.hash(name) and re.fullmatch(f"{self.origin}(/t/[0-9a-f]{{32}})?", name)

    def signs(self, checkpoint, name, signature):
        if checkpoint.origin != name or not self.names(name, signature):
            return False
        try:
            self.public.verify(unbase64(signature)[4:], checkpoint.body)
        except (InvalidSignature, ValueError):
            return False
        return True

    def signed(self, checkpoint):
        """Reports whether a checkpoint has one signature, by this key and in its one spelling."""
        match = SIGNATURE.fullmatch(checkpoint.signatures)
        return bool(match) and self.signs(checkpoint, *match.groups())

    def signs_a_part(self, checkpoint):
        """Reports whether one of one or two signatures is by this key, as a border has them (section 4.5)."""
        if not is_border(checkpoint):
            return self.signed(checkpoint)
        signatures = map(SIGNATURE.fullmatch, re.findall("[^\n]*\n|[^\n]+", checkpoint.signatures))
        return any(found and self.signs(checkpoint, *found.groups()) for found in signatures)

    def rotated(self, signatures):
        """A hint where signatures name this log, or a tree in it, and none is said to be by this key. It proves nothing."""
        if any(re.fullmatch(f"{self.origin}(/t/[0-9a-f]{{32}})?", name) for name, _ in SIGNATURE.findall(signatures)):
            return ("; it names another key for the same log, which may have been handed over to a new key (rotation): the "
                    "log's own verification lists its keys, and /v1/log/key has the newest")
        return ""

    def open_anchor(self, text):
        """A checkpoint that was kept, of the log or of a tenant's tree: others may have signed it too."""
        checkpoint = parse_checkpoint(text + "\n")
        if not checkpoint or not re.fullmatch(f"(?:{SIGNATURE.pattern})+", checkpoint.signatures):
            raise Distrust("the anchor is not a checkpoint")
        others = [signature for _, signature in SIGNATURE.findall(checkpoint.signatures)]
        if len(others) > MOST_SIGNATURES or any(len(text) % 4 or len(base64.b64decode(text)) < 5 for text in others):
            raise Distrust("the anchor has a signature that is none, or more than it may have")
        ours = [found for found in SIGNATURE.findall(checkpoint.signatures) if self.names(*found)]
        if not ours or not self.signs(checkpoint, *ours[0]):
            hint = "" if ours else self.rotated(checkpoint.signatures)
            raise Distrust("the anchor is not signed by the trusted key" + hint)
        return checkpoint


# ---- Trees (section 4): RFC 6962.

def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def leaf_hash(leaf):
    return sha256(b"\0", leaf)


class Tree:
    """A tree that grows, kept as the roots of its full subtrees, the largest first: one for each 1 in its size in binary."""

    def __init__(self):
        self.size, self.subtrees = 0, []

    def add(self, leaf, count=1):
        """Takes the next leaf; or the root over so many, a power of two of which a multiple stands before."""
        node, size = leaf, self.size // count
        while size & 1:
            node, size = sha256(b"\1", self.subtrees.pop(), node), size >> 1
        self.subtrees.append(node)
        self.size += count

    def root(self):
        if not self.subtrees:
            return sha256()
        node = self.subtrees[-1]
        for left in reversed(self.subtrees[:-1]):
            node = sha256(b"\1", left, node)
        return node


class TenantTree(Tree):
    """A tenant's tree, which has its name from its first leaf (section 4.1)."""

    def __init__(self, log_origin, leaf):
        super().__init__()
        tree_id = sha256(b"agentgate tenant tree v1\n", log_origin.encode(), b"\n", leaf)[:16].hex()
        self.origin = f"{log_origin}/t/{tree_id}"

    def checkpoint_text(self):
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root()).decode()}\n".encode()


# ---- Removed entries (section 8): what is left of them is the roots of full subtrees.

LEFT_OUT = re.compile(f'{{"left_out":{{"count":({NUMBER}),"root":"([A-Za-z0-9+/]{{43}}=)"}}}}')
PRUNED = re.compile(f'{{"pruned":{{"v":1,"log":({TEXT}),"before":({NUMBER}),"no_tenant":({NUMBER})(?:,"vkey":({TEXT}))?}}}}')
TENANT = re.compile(f'{{"tenant":{{"name":({TEXT}),"size":({NUMBER}),"last":({NUMBER}),"waits":(true|false)}}}}')


def read_left_out(line, size, folded):
    """The root and the count of leaves that are left out behind `size` others; and `folded`, of how many the line is
    that may become one of twice as many: then none of as many may stand behind it (section 4.4)."""
    match = spelled(LEFT_OUT, line)
    root, count = match and unbase64(match[2]), int(match[1]) if match else 0
    if not root or count < 1 or count & (count - 1) or size % count or size + count > MOST:
        raise Fault("not a line for what is left out, or one that cannot stand here")
    if size == 0 and count > 1 or folded == count:
        raise Fault("what is left out has other lines: the first leaf its own, and the others as few as there can be")
    # With one of as many behind it, it would be the half of a larger one; but never the first leaf.
    return root, count, count if size and size // count % 2 == 0 else 0


class Office:
    """The key walk (section 4.5): the keys that were in office, one after the other, each with the entries before it."""

    def __init__(self, origin, first=None):
        self.origin, self.keys, self.borders = origin, [], []
        if first is not None:
            self.keys.append((key_or_none(first, origin), first, 0))

    def now(self):
        return self.keys[-1][0] if self.keys else None

    def has(self, text):
        return any(text == known for _, known, _ in self.keys)

    def hand_over(self, checkpoint, named):
        """A checkpoint with two signatures, behind the record that named a key, or behind another (None)."""
        old, new = self.now(), named and key_or_none(json.loads(named), self.origin)
        signatures = SIGNATURE.findall(checkpoint.signatures)
        if not old or not new or not re.fullmatch(f"(?:{SIGNATURE.pattern}){{2}}", checkpoint.signatures):
            raise Fault("a checkpoint with two signatures that does not stand behind the record of a key of this log")
        if any(known.hash(self.origin) == new.hash(self.origin) for known, _, _ in self.keys):
            raise Fault("a key takes over that was in office before")
        if not old.signs(checkpoint, *signatures[0]) or not new.signs(checkpoint, *signatures[1]):
            raise Fault("the log is handed over, but not signed by the old key and then by the new one")
        self.keys.append((new, new.text, checkpoint.size))
        self.borders.append((checkpoint.body, checkpoint.signatures))


def key_or_none(text, origin):
    """The key of a log of that origin, as a header or a record names it."""
    try:
        key = Key(text)
    except Distrust:
        return None
    return key if key.origin == origin else None


def is_border(checkpoint):
    return len(re.findall("[^\n]*\n|[^\n]+", checkpoint.signatures)) == 2


class Pruned:
    """The file `pruned`."""

    def __init__(self, text):
        self.sha256 = hashlib.sha256(text).hexdigest()
        self.lines = text.split(b"\n")
        if self.lines.pop() or any(len(line) > LONGEST for line in self.lines):
            raise Fault("the file pruned does not end with a line, or has one that is too long")
        match = self.next_line(PRUNED)
        self.log, self.before, self.strangers = json.loads(match[1]), int(match[2]), int(match[3])
        self.tree, self.tenants, self.waiting = Tree(), {}, OrderedDict()
        self.office = Office(self.log, match[4] and json.loads(match[4]))
        if match[4] == '""':
            raise Fault("the file pruned is not in its one spelling")
        if not 0 < self.before <= MOST:
            raise Fault("the file pruned is of no entry")
        self.read_tree(self.tree, self.before)
        if len(self.office.keys) == 1:
            raise Fault("the file pruned names a first key, and no other after it")
        counted, last_name = self.strangers, None
        while self.lines:
            match = self.next_line(TENANT)
            name, size, last = match[1], int(match[2]), int(match[3])
            if name == '""' or name in self.tenants or not 0 < last <= self.before or not 0 < size <= MOST:
                raise Fault("the file pruned tells of a tenant twice, or of what cannot be")
            if match[4] == "true":
                if last_name is not None:
                    raise Fault("in the file pruned, one who waits comes behind one who does not")
            elif last_name is not None and last_name.encode() >= name.encode():
                raise Fault("the file pruned does not have its tenants in order")
            else:
                last_name = name
            self.tenants[name] = self.read_tree(None, size)
            if match[4] == "true":
                self.waiting[name] = self.tenants[name]
            counted += size
        if counted != self.before:
            raise Fault(f"the file pruned is of {self.before} entries, and tells of {counted}")

    def next_line(self, expression):
        match = self.lines and spelled(expression, self.lines.pop(0))
        if not match:
            raise Fault("the file pruned is not in its one spelling")
        return match

    def read_tree(self, tree, size):
        folded = 0
        while self.lines and (self.lines[0].startswith(b'{"left_out":') or tree is self.tree and self.lines[0].startswith(b'{"v":')):
            if self.lines[0].startswith(b'{"v":'):
                self.read_border()
                folded = 0
                continue
            root, count, folded = read_left_out(self.lines.pop(0), tree.size if tree else 0, folded)
            tree = tree or TenantTree(self.log, root)
            tree.add(root, count)
        if not tree or tree.size != size:
            raise Fault("the file pruned does not have as many leaves as it says")
        return tree

    def read_border(self):
        """A key's record among the left-outs, and the border behind it."""
        line = self.lines.pop(0)
        record = parse_record(line)
        checkpoint = self.lines and parse_checkpoint_line(self.lines.pop(0))
        self.tree.add(leaf_hash(line))
        if record["kind"] != "key" or self.tree.size < 2 or self.tree.size > self.before or not checkpoint or not is_border(checkpoint):
            raise Fault("in the file pruned, a record that is none of a key that took over")
        if (checkpoint.origin, checkpoint.size, checkpoint.root) != (self.log, self.tree.size, self.tree.root()):
            raise Fault("in the file pruned, a border that is not of the entries before it")
        self.office.hand_over(checkpoint, record["vkey"])


# ---- The walk (section 6).

def begins(record):
    """Reports whether another record of the same id is to follow (section 3.2)."""
    return record["kind"] == "intent" or (record["kind"] == "summary" and record["reason"] == '"flood"' and record["ending"] is None)


class Log:
    """What is known of a log after so many lines."""

    def __init__(self, key):
        self.key, self.anchor = key, None           # the anchor may be of a tenant's tree
        self.office = Office(key.origin)            # the keys of the log, as far as it was read
        self.named, self.over = None, False         # by the last entry, a key's record; the last line was a border
        self.headed = False                         # a header was read
        self.stored = self.anchor_key = None        # the file `checkpoint`, and the key that has signed it; who has signed the anchor
        self.tree = Tree()                          # of all entries
        self.tenants = {}                           # each one's tree
        self.strangers = 0                          # records without a tenant
        self.waiting = OrderedDict()                # trees that grew since a heads record told of them, in that order
        self.open, self.closed = {}, OrderedDict()  # ids of receipts; of those that have begun with their kind
        self.summaries = {}                         # of those that have begun, how many refusals they stand for
        self.stored_fault = False                   # the file `checkpoint` is there, and of another log or key
        self.marks = defaultdict(list)              # size -> checkpoints from beside the segments: (root, what it is)
        self.covered = 0                            # entries under the newest checkpoint that holds
        self.loose, self.loose_place = 0, None      # batches with entries behind it, and where the first of them is
        self.place, self.end = None, 0              # (file, line, offset) of the line, and the offset of its end
        self.counts, self.kinds = Counter(), Counter()
        self.anchor_time = None                     # of the last record that the anchor covers
        self.tree_met = False                       # the tree of the anchor has been what the anchor says
        self.log_key = self.first = self.last = None
        self.last_kind, self.cut_short = None, False  # the log ends in a torn tail
        self.pruned, self.proven = None, 0          # what is left of removed entries; and of how many entries the last says so
        self.pruned_text, self.pruned_file = None, None
        self.removed, self.pruned_fault = False, None  # the anchor is of removed entries; what is left of them is not what it says

    def sealed(self):
        """Reports whether the writer has stopped in good order (section 3.2)."""
        return self.last_kind == "seal" and self.covered == self.tree.size and not self.cut_short

    def tenant_anchored(self):
        return self.anchor is not None and self.anchor.origin != self.key.origin

    def candidates(self, path):
        """The keys that may have signed, before the walk is known: the trusted one, and those that the log names."""
        found = [self.key]
        folder = os.path.join(path, "receipts")
        folder = folder if os.path.isdir(folder) else path
        try:
            pruned = read_if_there(os.path.join(folder, "pruned"))
            if pruned is not None:
                found += [key for key, _, _ in Pruned(pruned).office.keys]
        except (Fault, OSError):
            pass
        try:
            for name in segment_names(folder):
                with open(os.path.join(folder, name), "rb") as file:
                    header = spelled(HEADER, file.readline(LONGEST + 1)[:-1])
                found.append(header and key_or_none(json.loads(header["vkey"]), self.key.origin))
        except (Unreadable, OSError):
            pass
        known = []
        for key in found:
            if key and key.origin == self.key.origin and key.hash(key.origin) not in [other.hash(key.origin) for other in known]:
                known.append(key)
        return known

    def open_anchor(self, path, text):
        """The anchor, by any key that the log may have."""
        reason = None
        for key in self.candidates(path):
            try:
                anchor = key.open_anchor(text)
            except Distrust as refused:
                reason = reason or refused
                continue
            self.anchor, self.anchor_key = anchor if anchor.size else None, key
            return
        raise reason

    def read(self, path, progress):
        if not stat.S_ISDIR(os.stat(path).st_mode):
            empty = "" if os.path.getsize(path) else " (it is empty)"
            raise Unreadable(f"{path}: not a folder, and no proof{empty}")
        folder = os.path.join(path, "receipts")
        folder = folder if os.path.isdir(folder) else path
        stored_file = os.path.join(folder, "checkpoint")
        stored = self.read_stored(stored_file, self.candidates(path))  # first: a log that is being written only grows
        self.pruned_file = os.path.join(folder, "pruned")
        self.pruned_text = read_if_there(self.pruned_file)  # before the segments too
        self.files = [os.path.join(folder, name) for name in segment_names(folder)]
        self.sizes = [os.path.getsize(file) for file in self.files]  # what is there by now, however it grows
        is_log = self.files or os.path.exists(stored_file) or os.path.basename(os.path.abspath(folder)) == "receipts"
        if not is_log and not self.anchor:
            raise Unreadable(f"{path}: there is no receipt log")
        for checkpoint, name in ((stored, "the file checkpoint"), (self.anchor, "the anchor")):
            if checkpoint and checkpoint.origin == self.key.origin:
                self.marks[checkpoint.size].append((checkpoint.root, name))
        self.progress = progress
        if self.pruned_text is not None:
            self.begin(Pruned(self.pruned_text))
        for file, size in zip(self.files, self.sizes):
            self.read_segment(file, size, file == self.files[-1])
        self.place, size = None, self.tree.size
        if self.stored_fault:
            raise Fault("the file checkpoint is not one of this log, signed by the trusted key")
        if max(self.marks, default=0) > size:
            marked = max(self.marks)
            raise Fault(f"{self.marks[marked][0][1]} covers {marked} entries, and there are {size}: some are missing", size)
        if self.tenant_anchored() and not self.tree_met:
            raise Fault(f"the tree {self.anchor.origin} has no {self.anchor.size} records, as the anchor says", size)
        if self.loose > 1:
            raise Fault(f"{self.loose} batches are under no signature, and a writer leaves one at most",
                        self.covered, size - 1, self.loose_place)
        if self.pruned_fault:
            raise Fault(self.pruned_fault)
        if self.pruned and not 0 < self.proven <= self.covered:
            raise Fault("no entry under a signature says that entries were removed, and that the file pruned is what is left")
        self.judge_keys()

    def judge_keys(self):
        """Holds who has signed against the key walk (section 4.5)."""
        if self.office.keys and not self.office.has(self.key.text):
            raise Fault("the trusted key has signed here, and the log was never handed over to it")
        if self.stored:
            checkpoint, by = self.stored
            if by.text != self.key.text and not self.office.has(by.text):
                raise Fault("the file checkpoint is signed by a key that was never in office")
            if is_border(checkpoint) and (checkpoint.body, checkpoint.signatures) not in self.office.borders:
                raise Fault("the file checkpoint has two signatures, and is none with which this log was handed over")
        if self.anchor_key and self.anchor_key.text != self.key.text and not self.office.has(self.anchor_key.text):
            raise Distrust("the anchor is signed by a key that was never in office")

    def begin(self, pruned):
        """Goes on behind removed entries as if they had been read (section 8)."""
        self.pruned, self.tree, self.tenants, self.waiting = pruned, pruned.tree, pruned.tenants, pruned.waiting
        self.strangers, self.covered, self.office = pruned.strangers, pruned.before, pruned.office
        there = [(file, size) for file, size in zip(self.files, self.sizes) if int(os.path.basename(file)[:20]) >= pruned.before]
        self.files, self.sizes = [file for file, _ in there], [size for _, size in there]
        for size in sorted(self.marks):
            if size <= pruned.before:
                for root, name in self.marks.pop(size):
                    self.removed = self.removed or name == "the anchor" and size < pruned.before
                    if size == pruned.before and root != self.tree.root():
                        self.pruned_fault = f"what is left of the removed entries is not what {name} was signed over"
        for tree in self.tenants.values() if self.tenant_anchored() else ():
            if tree.origin == self.anchor.origin and tree.size >= self.anchor.size:
                self.tree_met, self.removed = True, tree.size > self.anchor.size
                if tree.size == self.anchor.size and tree.root() != self.anchor.root:
                    self.pruned_fault = "what is left of this tenant's records is not what the anchor was signed over"

    def replaced(self):
        """Reports whether entries were removed since this began to read."""
        return self.pruned_file is not None and read_if_there(self.pruned_file) not in (None, self.pruned_text)

    def read_stored(self, path, candidates):
        """The file `checkpoint`; None where it is missing, or never reached the disk."""
        try:
            with open(path, "rb") as file:
                note = file.read(1 << 20)
        except FileNotFoundError:
            return None
        if not note.strip(b"\0"):
            return None
        checkpoint = parse_checkpoint(note.decode(errors="replace"))
        signed = checkpoint and (re.match if is_border(checkpoint) else re.fullmatch)(SIGNATURE, checkpoint.signatures)
        by = [key for key in candidates if signed and checkpoint.origin == key.origin and key.signs(checkpoint, *signed.groups())]
        self.stored_fault = not by
        if self.stored_fault:
            return None
        self.stored = checkpoint, by[0]
        self.counts["checkpoints"] += 1
        return checkpoint

    def read_segment(self, path, size, is_last):
        name = os.path.basename(path)
        self.place, self.end, self.size = (name, 0, 0), 0, size
        self.counts["segments"] += 1
        try:
            if int(name[:20]) != self.tree.size:
                raise Fault(f"the segment begins with entry {int(name[:20])}, and {self.tree.size} stand before it")
            if size == 0 and not is_last:
                raise Fault("an empty segment, and it is not the last")
            with open(path, "rb") as file:
                self.read_lines(file)
        except Fault as fault:
            offset = self.place[2]
            signed_behind = max(self.marks, default=0) > self.tree.size or (
                self.office.now() is not None and self.signed_in(path, size, offset, self.tree.size, self.office.now()))
            if isinstance(fault, Broken) and is_last and not signed_behind:
                self.counts["torn_bytes"], self.cut_short = size - offset, True
                return
            if fault.entry is None:
                fault.entry = self.tree.size  # of a fault in a line that is no entry the next one is named
            raise

    def signed_in(self, path, end, offset=0, size=-1, key=None):
        """Reports whether a checkpoint of more than `size` entries, signed by a key, stands between two offsets."""
        if end <= offset:
            return False
        with open(path, "rb") as file, mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as data:
            for match in re.compile(rb'(\{"checkpoint":"[^"\n]*"\})\n').finditer(data, offset):
                checkpoint = parse_checkpoint_line(match[1])
                if checkpoint and checkpoint.size > size and checkpoint.origin == key.origin and key.signs_a_part(checkpoint):
                    return True
        return False

    def next_line(self, file):
        """The next line without its LF; None at the end of the file."""
        line = file.readline(min(LONGEST + 1, self.size - self.end))
        self.place = (self.place[0], self.place[1] + 1, self.end)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise Broken(f"a line of over {LONGEST} bytes" if len(line) > LONGEST else "a line that does not end")
        self.end += len(line)
        return line[:-1]

    def read_lines(self, file):
        """segment = header *( checkpoint / batch )"""
        line = self.next_line(file)
        if line is not None:
            self.read_header(line)
        while (line := self.next_line(file)) is not None:
            if line.startswith(b'{"checkpoint":'):
                self.read_checkpoint(line)
            else:
                self.read_batch(line, file)
                self.progress(self.tree.size)

    def read_header(self, line):
        header = spelled(HEADER, line)
        if not header:
            raise Broken("not the header of a segment in the spelling of version 1")
        if int(header["first"]) != self.tree.size:
            raise Broken(f"the header says that entry {header['first']} is next, and it is {self.tree.size}")
        log, vkey = json.loads(header["log"]), json.loads(header["vkey"])
        if self.pruned and log != self.pruned.log:
            raise Fault("the file pruned is of another log")
        self.log_key = self.log_key or vkey
        if not self.office.keys:
            self.office = Office(log, vkey)
        elif self.office.keys[-1][1] != vkey:
            raise Fault(f"the header names another key than the one in office, {header['vkey']}")
        if log != self.key.origin or not self.headed and not self.office.has(self.key.text):
            stored = self.stored and self.stored[1].text == self.key.text
            if not stored and not any(self.signed_in(file, size, key=self.key) for file, size in zip(self.files, self.sizes)):
                raise Distrust(f"this is another log, of the key {header['vkey']}")
            if log != self.key.origin:
                raise Fault(f"the header names another log, {header['log']}")
        self.headed = True

    def read_checkpoint(self, line):
        checkpoint = parse_checkpoint_line(line)
        if not checkpoint or (checkpoint.origin, checkpoint.size) != (self.key.origin, self.tree.size):
            raise Broken("not a checkpoint of the entries before it")
        key = self.office.now()
        signed = key is not None and (key.signs_a_part if is_border(checkpoint) else key.signed)(checkpoint)
        if checkpoint.root != self.tree.root():
            raise self.differs(f"the checkpoint in line {self.place[1]}") if signed else Broken("another root, and not signed")
        if is_border(checkpoint):
            self.office.hand_over(checkpoint, self.named)
            self.over = self.end < self.size
        elif not signed:
            raise Fault("the checkpoint is not signed by the key in office, or in another spelling")
        self.counts["checkpoints"] += 1
        self.hold()
        if self.over:
            self.place = (self.place[0], self.place[1] + 1, self.end)
            raise Fault("something stands behind the border, which is the last line of its segment", self.tree.size)

    def hold(self):
        """All entries up to here are what the key has signed."""
        self.covered, self.loose, self.loose_place, self.in_loose_batch = self.tree.size, 0, None, False

    def differs(self, signed):
        """A root tells that one of the entries since the last one that held is another, and not which."""
        if self.covered == self.tree.size:
            return Fault(f"{signed} has another root")
        return Fault(f"not what {signed} was signed over", self.covered, self.tree.size - 1, self.loose_place)

    def read_batch(self, line, file):
        """batch = batchline count*record"""
        batch = spelled(BATCH, line)
        first, count, length = map(int, batch.groups()) if batch else (0, 0, 0)
        if not batch or first != self.tree.size or count == 0 or max(count, length) > MOST:
            raise Broken("not a line that may stand here")
        self.counts["batches"] += 1
        self.in_loose_batch, begin = False, self.end
        for left in range(count - 1, -1, -1):
            line = self.next_line(file)
            if line is None:
                raise Broken(f"the batch ends here, without {left + 1} of its records")
            record = parse_record(line)
            if self.end - begin > length or left == 0 and self.end - begin < length:
                raise Broken(f"the records of the batch do not take {length} bytes")
            self.add(record, leaf_hash(line))

    def add(self, record, leaf):
        """Takes the next entry. What it says is held against all that stands before it."""
        tenant, kind = record["tenant"], record["kind"]
        tree = self.tenants.get(tenant)
        before = self.strangers if not tenant else tree.size if tree else 0
        if int(record["seq"]) != before + 1:
            raise Broken(f"seq {record['seq']} after {before}")
        if kind == "heads":
            self.check_heads(int(record["count"]), record["root"])
        self.check_receipt(record["id"], kind, begins(record))
        if kind == "pruned" and self.pruned and (int(record["before"]), record["remains"]) == (self.pruned.before, self.pruned.sha256):
            self.proven = self.proven or self.tree.size + 1
        if self.tree.size == 0 and (kind != "key" or json.loads(record["vkey"] or '""') != self.office.keys[0][1]):
            raise Fault("the first entry is not the record of the log's key")
        if not tenant:
            self.strangers += 1
        else:
            tree = self.tenants.setdefault(tenant, tree or TenantTree(self.key.origin, leaf))
            tree.add(leaf)
            self.waiting.setdefault(tenant, tree)
        self.named = record["vkey"] if kind == "key" and self.tree.size else None
        self.tree.add(leaf)
        if tenant and self.tenant_anchored() and (tree.origin, tree.size) == (self.anchor.origin, self.anchor.size):
            self.tree_met = tree.root() == self.anchor.root
            self.anchor_time = record["t"].strip('"')
            if not self.tree_met:
                raise Fault("the records of this tenant are not those that the anchor was signed over", self.tree.size - 1)
        self.loose_place = self.loose_place or self.place
        if not self.in_loose_batch:
            self.loose, self.in_loose_batch = self.loose + 1, True
        if self.anchor and not self.tenant_anchored() and self.tree.size == self.anchor.size:
            self.anchor_time = record["t"].strip('"')
        marks = self.marks.pop(self.tree.size, ())
        for root, name in marks:  # where one holds and another does not, both are of the entries since the last before
            if root != self.tree.root():
                raise self.differs(name)
        if marks:
            self.hold()
        self.count(record)

    def check_heads(self, count, root):
        """A heads record tells of the `count` trees that have waited longest (section 4.2)."""
        if not 1 <= count <= len(self.waiting):
            raise Broken(f"heads of {count} tenants' trees, and {len(self.waiting)} have grown")
        heads = Tree()
        for _, tree in (self.waiting.popitem(last=False) for _ in range(count)):
            heads.add(leaf_hash(tree.checkpoint_text()))
        if base64.b64encode(heads.root()).decode() != root:
            raise Broken("these heads are not those of the tenants' trees before them")

    def check_receipt(self, receipt, kind, begins):
        """A receipt has an intent and then an outcome, or one of the two, or a summary's beginning and end, or is a single
        record (section 3.2)."""
        begun = self.open.get(receipt)
        if receipt in self.closed or begun and (begins or kind != {"intent": "outcome", "summary": "summary"}[begun]):
            raise Fault(f"the receipt {receipt} had its {'end' if receipt in self.closed else 'beginning'} before")
        if begins:
            self.open[receipt] = kind
            return
        self.counts["outcomes_without_intent"] += self.open.pop(receipt, None) is None and kind == "outcome"
        self.closed[receipt] = None
        if len(self.closed) > LOOK_BACK:
            self.closed.popitem(last=False)

    def count(self, record):
        self.last_kind = record["kind"]
        self.kinds[self.last_kind] += 1
        self.last = record["t"].strip('"')
        self.first = self.first or self.last
        unknown, summary = record["ending"] == '"outcome_unknown"', record["kind"] == "summary"
        self.counts["unknown_outcomes"] += unknown and record["kind"] == "outcome"
        self.counts["uncounted_gaps"] += unknown and record["kind"] == "gap"
        self.counts["uncounted"] += unknown and summary
        if summary:  # the end of one stands in the place of its beginning
            before, stands_for = self.summaries.pop(record["id"], 0), int(record["attempts"])
            self.counts["summarised"] += max(stands_for, before) - before
            if begins(record):
                self.summaries[record["id"]] = stands_for
        self.counts["interval_records"] += record["interval"] is not None
        self.counts["gap_attempts"] += int(record["attempts"]) if record["kind"] == "gap" else 0


def read_if_there(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def segment_names(folder):
    """The segments in their order (section 1)."""
    names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl") and not name.startswith("."))
    for name in names:
        regular = stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)
        if not regular or not re.fullmatch(r"[0-9]{20}\.jsonl", name) or int(name[:20]) > MOST:
            raise Unreadable(f"{name!a} is not a segment of a receipt log")
    return names


# ---- Proofs (section 4.3): a record is in a tree, and a checkpoint of that tree is signed.

PROOF_LINE = "c2sp.org/tlog-proof@v1\n"
PROOF = re.compile(f"{PROOF_LINE}extra ([A-Za-z0-9+/]+={{0,2}})\nindex ({NUMBER})\n((?:[A-Za-z0-9+/]{{43}}=\n)*)\n"
                   f"((?:(?!{PROOF_LINE}).*\n)+)")


def verify_proofs(key, text):
    """The records that a file of proofs shows to be in the log."""
    try:
        text = text.decode()
    except UnicodeDecodeError:
        raise misspelt_proof("") from None
    proofs = PROOF.findall(text)
    if "".join(match[0] for match in re.finditer(PROOF, text)) != text:
        raise misspelt_proof(text)
    records = [verify_proof(key, *proof) for proof in proofs]
    if len({parse_record(line.encode())["id"] for line in records}) > 1:
        raise Fault("the proofs in one file are to be of one receipt")
    return records


def misspelt_proof(text):
    hint = "; the file has a line end too many, as jq -r adds one: write it with jq -j" if text.endswith("\n\n") else ""
    return Fault("not a proof in its one spelling" + hint)


def verify_proof(key, extra, index, path, note):
    line, index, checkpoint = unbase64(extra), int(index), parse_checkpoint(note)
    hashes = [unbase64(text) for text in path.split()]
    if line is None or None in hashes or not checkpoint or index > MOST:
        raise misspelt_proof(note)
    record, leaf = parse_record(line), leaf_hash(line)
    signature = SIGNATURE.fullmatch(checkpoint.signatures)
    if not signature or not unbase64(signature[2]):
        raise Fault("the checkpoint does not have one signature in its one spelling")
    if not key.names(*signature.groups()):
        raise Distrust("the checkpoint is not signed by the trusted key" + key.rotated(checkpoint.signatures))
    if not key.signed(checkpoint):
        raise Fault("the signature of the checkpoint does not hold")
    if root_of_path(leaf, index, checkpoint.size, hashes) != checkpoint.root:
        raise Fault(f"the record is not leaf {index} of the tree that was signed")
    if checkpoint.origin != key.origin:
        if not record["tenant"] or int(record["seq"]) != index + 1:
            raise Fault("the record has another place among its tenant's")
        if index == 0 and checkpoint.origin != TenantTree(key.origin, leaf).origin:
            raise Fault("the tree does not have its name from its first record")
    return line.decode()


def root_of_path(leaf, index, size, path):
    """The root that an audit path gives (RFC 9162, section 2.1.3.2); None where it is no path of that leaf."""
    node, last = leaf, size - 1
    if index > last:
        return None
    for other in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            node = sha256(b"\1", other, node)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            node = sha256(b"\1", node, other)
        index, last = index >> 1, last >> 1
    return node if last == 0 else None


def check_params(records, salt, params):
    """Whether the call had these parameters, by the salt that was told of its receipt (section 3.6)."""
    committed = [found for found in (parse_record(line.encode())["params"] for line in records) if found]
    if not committed:
        raise Fault("no record here says anything of parameters")
    hashed = base64.urlsafe_b64encode(hmac.digest(salt, params, "sha256")).decode().rstrip("=")
    for found in map(json.loads, committed):
        if found["alg"] != "agentgate-params-v1":
            raise Fault(f"the parameters are hashed by {found['alg']!a}, which this verifier does not know")
        if found["hash"] != hashed:
            raise Fault("the parameters, or the salt, are not those of the receipt")


# ---- Exports (section 4.4): a tenant's tree, of which each leaf is shown or stands in a hash, and its checkpoint.

EXPORT_LINE = b'{"export":{"v":1}}'


class Export:
    """What is known of an export after so many lines."""

    def __init__(self, key, anchor):
        if anchor and anchor.origin == key.origin:
            raise Distrust("the anchor is of the whole log, of which an export shows nothing")
        self.key, self.anchor = key, anchor
        self.tree, self.met, self.place = Tree(), None, None
        self.time, self.anchor_time = None, None  # of the record in the line before, and of the anchor's last
        self.tenant, self.name, self.shown, self.declared = None, None, 0, 0
        self.open, self.alone = set(), 0  # intents without an outcome, and outcomes without an intent
        self.folded = 0  # of how many leaves the line before is that may become one of twice as many

    def read(self, path):
        with open(path, "rb") as file:
            self.path, self.file, self.number, self.offset = path, file, 0, 0
            if self.next_line() != EXPORT_LINE:
                raise Fault("not an export of version 1")
            while (line := self.next_line()) is not None:
                if line.startswith(b'{"checkpoint":'):
                    if self.next_line() is not None:
                        raise Fault("something stands behind the checkpoint, which is the last line")
                    return self.close(line)
                if line.startswith(b'{"v":'):
                    self.add_record(line)
                else:
                    self.add_left_out(line)
                if self.anchor and self.tree.size == self.anchor.size:
                    self.met = self.tree.root() == self.anchor.root
                    self.anchor_time = self.time if self.met else None
            raise Fault("it ends without a checkpoint: the rest is missing")

    def next_line(self):
        line = self.file.readline(LONGEST + 1)
        if not line:
            return None
        self.number, self.place = self.number + 1, (os.path.basename(self.path), self.number + 1, self.offset)
        self.offset += len(line)
        if not line.endswith(b"\n"):
            raise Fault("the line has no end, or is longer than any may be")
        return line[:-1]

    def add_record(self, line):
        record = parse_record(line)
        if not record["tenant"] or self.tenant not in (None, record["tenant"]):
            raise Fault("a record of no tenant, or of another than the others")
        if int(record["seq"]) != self.tree.size + 1:
            raise Fault(f"record {record['seq']} of its tenant stands where record {self.tree.size + 1} is to")
        self.tenant, self.folded, self.shown = record["tenant"], 0, self.shown + 1
        self.time = record["t"].strip('"')
        self.declared += record["interval"] is not None or record["kind"] == "gap"
        if record["kind"] == "intent":
            self.open.add(record["id"])
        elif record["kind"] == "outcome":
            self.alone += record["id"] not in self.open
            self.open.discard(record["id"])
        self.take(leaf_hash(line), 1)

    def add_left_out(self, line):
        root, count, self.folded = read_left_out(line, self.tree.size, self.folded)
        self.time = None
        self.take(root, count)

    def take(self, root, count):
        if self.tree.size == 0:
            self.name = TenantTree(self.key.origin, root).origin
        self.tree.add(root, count)

    def close(self, line):
        """The checkpoint, and what of it the anchor has to say."""
        checkpoint = parse_checkpoint_line(line)
        signature = checkpoint and SIGNATURE.fullmatch(checkpoint.signatures)
        if not signature or not unbase64(signature[2]):
            raise Fault("the checkpoint is not in its one spelling, with one signature")
        if not self.key.names(*signature.groups()):
            raise Distrust("the checkpoint is not signed by the trusted key" + self.key.rotated(checkpoint.signatures))
        if not self.key.signed(checkpoint):
            raise Fault("the signature of the checkpoint does not hold")
        if (checkpoint.origin, checkpoint.size, checkpoint.root) != (self.name, self.tree.size, self.tree.root()):
            raise Fault("the records before the checkpoint are not those that it was signed over, or not all of them")
        if self.anchor and (self.anchor.origin != self.name or self.anchor.size > self.tree.size or self.met is False):
            raise Fault("the anchor is of another tenant's tree, or covers more, or was signed over other records")

    def judge(self):
        if self.shown < self.tree.size:
            return 4, f"a selection: what it shows holds; {self.tree.size - self.shown} of {self.tree.size} records are left out"
        if not self.anchor:
            return 4, "holds as far as it goes; without an anchor nothing shows that the end was not cut off"
        if self.declared:
            return 4, "holds up to the anchor, but the records themselves declare that some may be lacking"
        return 0, ("these are all records of the tenant up to the checkpoint, unaltered, and nothing up to the anchor is missing"
                   + of_those_alone(self.alone))

    def report(self):
        return {"tenant": json.loads(self.tenant or "null"), "tree": self.name, "size": self.tree.size, "shown": self.shown,
                "left_out": self.tree.size - self.shown, "root": base64.b64encode(self.tree.root()).decode(),
                "anchor": self.anchor.size if self.anchor else 0, "anchor_met": bool(self.met), "anchor_time": self.anchor_time,
                **{name: count for name, count in (("intents_without_outcome", len(self.open)), ("outcomes_without_intent", self.alone))
                   if self.shown == self.tree.size}}

    def left_open(self):
        """What calls leave open of which there is one record of two, where none is left out (section 6)."""
        return [text for there_is, text in half_recorded(self.alone, len(self.open)) if there_is and self.shown == self.tree.size]


def is_export(path):
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(10) == EXPORT_LINE[:10]


# ---- The report.

VERDICTS = ("holds", "does not hold", "untrusted key", "cannot be read", "not all proven")


def verify(path, vkey_file, anchor_file=None, progress=lambda entries: None, salt=None, params_file=None):
    """Verifies a log, a proof or an export. Returns the exit code, and a report for people and programs."""
    log, export, report = None, None, {}
    try:
        key = Key(read_given(vkey_file))
        report["trusted_key"] = key.text
        proofs = read_proofs(path)
        if proofs is not None:
            if anchor_file is not None:
                raise Distrust("a proof takes no anchor: it ends with its own checkpoint")
            records = verify_proofs(key, proofs)
            why = "the log has written these records as they stand here"
            if salt is not None:
                with open(params_file, "rb") as file:
                    check_params(records, salt, file.read())
                why += ", and the call had these parameters"
            report.update(records=records, verdict=VERDICTS[0], why=why)
            return 0, report
        if salt is not None:
            raise Distrust("--salt and --params go with the proof of one receipt")
        given = read_given(anchor_file) if anchor_file is not None else None
        if is_export(path):
            anchor = key.open_anchor(given) if given is not None else None
            anchor = anchor if anchor and anchor.size else None
            export = Export(key, anchor)
            export.read(path)
            code, why = export.judge()
            report.update(verdict=VERDICTS[code], why=why, export=export.report(), not_proven=export.left_open())
            return code, report
        while True:
            try:
                log = Log(key)
                if given is not None:
                    log.open_anchor(path, given)
                log.read(path, progress)
                break
            except (Fault, OSError):
                if not log.replaced():
                    raise
        code, why = judge(log)
    except Fault as fault:
        code, why = 1, str(fault)
        file, line, offset = fault.place or (log and log.place) or (export and export.place) or (os.path.basename(path), None, None)
        report["damage"] = {"file": file, "line": line, "offset": offset, "index": fault.entry, "last": fault.last, "what": why}
    except Distrust as reason:
        code, why = 2, str(reason)
    except (Unreadable, OSError) as reason:
        code, why = 3, str(reason)
    report.update(verdict=VERDICTS[code], why=why)
    if log and code in (0, 1, 4):
        report.update(
            log_key=log.log_key, keys=[{"vkey": text, "from": since} for _, text, since in log.office.keys], size=log.tree.size, pruned=log.pruned.before if log.pruned else 0, root=base64.b64encode(log.tree.root()).decode(), covered=log.covered,
            anchor=0 if not log.anchor or log.tenant_anchored() else log.anchor.size, anchor_time=log.anchor_time, first=log.first, last=log.last, kinds=dict(log.kinds),
            tenants=len(log.tenants), repaired_tails=log.kinds["recovery"], gaps=log.kinds["gap"],
            intents_without_outcome=list(log.open.values()).count("intent"), summaries_without_end=list(log.open.values()).count("summary"),
            summarised={"refusals": log.counts["summarised"], "uncounted": log.counts["uncounted"]}, sealed=code != 1 and log.sealed(), **{name: log.counts[name] for name in (
                "torn_bytes", "segments", "batches", "checkpoints", "unknown_outcomes", "outcomes_without_intent", "interval_records",
                "gap_attempts", "uncounted_gaps")})
        report["not_proven"] = left_open(log) if code != 1 else []
    return code, report


def left_open(log):
    """What the log leaves open, in words."""
    size, anchored, in_flight = log.tree.size, log.anchor and not log.tenant_anchored(), list(log.open.values()).count("intent")
    end = f", the last of {log.anchor_time}" if log.anchor_time else ""
    return [text for there_is, text in (
        (log.pruned, f"what the removed entries said: {log.pruned.before if log.pruned else 0}"),
        (size > log.covered, f"the last {size - log.covered} entries: they are under no signature yet"),
        (not anchored, "that the end of the log was not cut off: no checkpoint of the log was given as an anchor"),
        (anchored, f"that nothing after the anchor's {log.anchor.size if log.anchor else 0} entries{end} was cut off"),
        (log.counts["interval_records"], "that a crash has lost no receipt: some were acknowledged before they were on disk"),
        (log.kinds["gap"], f"what was asked and done in attempts answered without a record: {log.counts['gap_attempts']}"),
        (log.counts["uncounted_gaps"], f"how many such attempts exactly: gaps declared after a crash, by what was known before it: {log.counts['uncounted_gaps']}"),
        (log.counts["summarised"], f"when each refusal came that was counted instead of recorded, and what it was: {log.counts['summarised']}"),
        (log.counts["uncounted"], f"how many more came after summaries that a crash cut short: {log.counts['uncounted']}"),
        *half_recorded(log.counts["outcomes_without_intent"], in_flight),
        (log.counts["unknown_outcomes"], f"how calls ended that a crash cut short: {log.counts['unknown_outcomes']}")) if there_is]


def half_recorded(alone, in_flight):
    """What calls leave open of which there is an outcome alone, or an intent alone, where there is any."""
    return ((alone, f"that there were no calls of which nothing is written: {alone} outcomes have no intent, and a crash leaves no trace of such a call"),
            (in_flight, f"how calls in flight end, which have an intent and no outcome yet: {in_flight}"))


def of_those_alone(alone):
    return f"; but {alone} outcomes have no intent, and of calls like that nothing may have been written" if alone else ""


def read_proofs(path):
    """The proofs in a file; None where it is none of proofs, so that it may be a log."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            text = file.read(1 << 24)
        if text.startswith(PROOF_LINE.encode()):
            return text
    return None


def read_given(path):
    """A file that was given: white space around what it says does not count."""
    with open(path, "rb") as file:
        text = file.read(1 << 20).strip()
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Distrust("the key or the anchor is not in UTF-8") from None


def judge(log):
    if not log.tree.size:
        return 4, "the log is empty, and nothing says whether it ever held anything"
    if log.removed:
        return 4, "holds as far as it goes; what the anchor covers was removed from the log, so that it cannot be compared"
    if log.tenant_anchored():
        return 4, "holds as far as it goes, and has all the tenant's records that the anchor covers; of others this is not shown"
    if not log.anchor:
        return 4, "holds as far as it goes; without an anchor nothing shows that the end was not cut off"
    if log.counts["interval_records"] or log.kinds["gap"]:
        return 4, "holds up to the anchor, but the log itself declares that it may lack records"
    if log.pruned:
        return 4, f"holds up to the anchor from entry {log.pruned.before} on; retention has removed those before it"
    return 0, ("nothing was altered, reordered or inserted, and nothing up to the anchor is missing"
               + of_those_alone(log.counts["outcomes_without_intent"]))


def show(report):
    """Prints a report for a person."""
    rows = [("verdict", report["verdict"].upper()), ("", report["why"])]
    damage = report.get("damage")
    if damage:
        at = f"{damage['file']}, line {damage['line']}, byte {damage['offset']}" if damage["line"] else damage["file"]
        entry = "" if damage["index"] is None else f"entry {damage['index']}"
        if damage["last"] not in (None, damage["index"]):
            entry += f", or one up to {damage['last']}"
        rows.append(("first fault", ": ".join(filter(None, (at, entry)))))
    if "size" in report:
        rows.append(("entries", f"{report['size']} read, {report['covered']} of them under a signature"))
        if report["pruned"]:
            rows.append(("pruned", f"< {report['pruned']}: the entries before this one were removed"))
        until = f", the last of {report['anchor_time']}" if report["anchor_time"] else ""
        rows.append(("anchor", f"{report['anchor']} entries{until}" if report["anchor"] else f"one tenant's{until}" if until else "none"))
        rows.append(("trusted key", report["trusted_key"]))
        if len(report["keys"]) > 1:
            rows += [("key from entry " + str(key["from"]), key["vkey"]) for key in report["keys"]]
    if "size" in report and not damage:
        rows += [("root", report["root"]), ("time", f"{report['first']} to {report['last']}"),
                 ("kinds", ", ".join(f"{count} {kind}" for kind, count in sorted(report["kinds"].items())))]
        rows += [(name.replace("_", " "), report[name]) for name in (
            "segments", "batches", "checkpoints", "tenants", "repaired_tails", "unknown_outcomes", "intents_without_outcome", "outcomes_without_intent",
            "gaps", "interval_records", "torn_bytes", "sealed")]
    if report.get("summarised", {}).get("refusals"):
        rows.append(("refusals counted", f"{report['summarised']['refusals']}, in summaries instead of a record each"))
    if report.get("gaps"):
        rows.append(("attempts in gaps", f"{report['gap_attempts']}, answered without a record"))
    if report.get("uncounted_gaps"):
        rows.append(("gaps of unknown size", report["uncounted_gaps"]))
    export = dict(report.get("export", {}))
    if export:
        met, size, until = export.pop("anchor_met"), export["anchor"], export.pop("anchor_time")
        export["anchor"] = f"{size} records" + (f", the last of {until}" if until else "" if met else ", not compared") if size else "none"
    rows += [(name.replace("_", " "), content) for name, content in export.items() if content is not None]
    rows += [("record", record) for record in report.get("records", ())]
    if report.get("records") and report["verdict"] == "holds":
        rows.append(("not proven", "that the receipt has no other records, and that everybody is shown the same tree"))
    rows += [("" if i else "not proven", text) for i, text in enumerate(report.get("not_proven", ()))]
    for name, content in rows:  # a log holds names that strangers chose
        print(f"{name:<25}" + "".join(c if c.isprintable() else "\ufffd" for c in str(content)))


def salt_of(text):
    if not re.fullmatch("(?:[0-9A-Fa-f]{2}){32}", text.strip()):
        raise argparse.ArgumentTypeError("not a salt, which is 64 hex digits")
    return bytes.fromhex(text)


def main():
    parser = argparse.ArgumentParser(description="Verify a receipt log offline, with the public key alone.")
    parser.add_argument("path", metavar="PATH", help="a data folder, its folder receipts, a copy of one, a proof or an export")
    parser.add_argument("--vkey", metavar="FILE", required=True, help="the verifier key, from before")
    parser.add_argument("--anchor", metavar="FILE", help="a checkpoint that was kept elsewhere")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--salt", metavar="HEX", type=salt_of, help="with a proof: the salt of the receipt")
    parser.add_argument("--params", metavar="FILE", help="with a proof: the bytes of the call's parameters")
    options = parser.parse_args()
    if (options.salt is None) != (options.params is None):
        parser.error("--salt and --params go together")
    sys.stdout.reconfigure(errors="backslashreplace")  # a log may hold what a terminal cannot show
    shown = time.monotonic()

    def progress(entries):
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() > shown + 1:
            shown = time.monotonic()
            print(f"\r{entries} entries read", end="", file=sys.stderr)

    code, report = verify(options.path, options.vkey, options.anchor, progress, options.salt, options.params)
    try:
        if options.json:
            print(json.dumps(report))
        else:
            show(report)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads wants no more, as head does; the exit code stays
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
