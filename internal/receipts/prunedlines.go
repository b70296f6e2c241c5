package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// append appends the text of the file, and notes its sum.
func (p *pruned) append(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	b.Write(appendPrunedLine(nil, p))
	write := func(r run) {
		for _, s := range r {
			if s.line == nil {
				b.Write(appendLeftOut(nil, s))
				continue
			}
			b.Write(s.line)
			b.WriteByte('\n')
			b.Write(appendCheckpointLine(nil, s.border))
		}
	}
	write(p.all)
	for _, t := range p.tenants {
		b.Write(appendTenantLine(nil, t, t.size()))
		write(t.tree)
	}
	sum := sha256.Sum256(b.Bytes()[len(dst):])
	p.sum, p.bytes = hex.EncodeToString(sum[:]), int64(b.Len()-len(dst))
	return b.Bytes()
}

func appendPrunedLine(dst []byte, p *pruned) []byte {
	dst = appendText(append(dst, prunedPrefix+`{"v":1,"log":`...), p.origin, 0)
	dst = fmt.Appendf(dst, `,"before":%d,"no_tenant":%d`, p.before, p.noTenant)
	if len(p.keys) > 0 {
		dst = appendText(append(dst, `,"vkey":`...), p.keys[0].vkey, 0)
	}
	return append(dst, "}}\n"...)
}

func appendTenantLine(dst []byte, t prunedTenant, size uint64) []byte {
	dst = appendText(append(dst, prunedTenantLine+`{"name":`...), t.name, 0)
	return fmt.Appendf(dst, `,"size":%d,"last":%d,"waits":%t}}`+"\n", size, t.last, t.waits)
}

// errPruned: the file of removed entries is not as a writer leaves it.
var errPruned = fmt.Errorf("the file %s is not what is left of removed entries, in its one spelling", prunedFile)

func parsePruned(text []byte) (*pruned, error) {
	var p *pruned
	var tree *run // that is being read
	var want, counted uint64
	var border bool // is to be the next line
	for line := range bytes.Lines(text) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		var err error
		switch {
		case !whole || len(line) > maxLine:
			err = errPruned
		case p == nil:
			if p, err = parsePrunedLine(line); err == nil {
				tree, want, counted = &p.all, p.before, p.noTenant
			}
		case border:
			err = p.readBorder(line)
			border = false
		case bytes.HasPrefix(line, []byte(`{"v":`)) && tree == &p.all && tree.size() < want:
			err = tree.readKey(line)
			border = true
		case bytes.HasPrefix(line, []byte(leftOutPrefix)):
			err = tree.read(line)
		default:
			var t prunedTenant
			var size uint64
			t, size, err = parseTenantLine(line)
			if err == nil && (tree.size() != want || t.last > p.before || size > p.before-counted) {
				err = errPruned
			}
			if err == nil {
				p.tenants = append(p.tenants, t)
				tree, want, counted = &p.tenants[len(p.tenants)-1].tree, size, counted+size
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if p == nil || border || tree.size() != want || counted != p.before || !inOrder(p.tenants) || len(p.keys) == 1 {
		return nil, errPruned
	}
	sum := sha256.Sum256(text)
	p.sum, p.bytes = hex.EncodeToString(sum[:]), int64(len(text))
	return p, nil
}

// read takes the next line of a run.
func (r *run) read(line []byte) error {
	s, err := parseLeftOut(line, r.size())
	if err != nil {
		return err
	}
	if n := len(*r); n == 0 && s.level > 0 || n > 1 && (*r)[n-1].joins(s) {
		return errPruned
	}
	*r = append(*r, s)
	return nil
}

// readKey takes the record of a key that has taken over, as the next leaf.
func (r *run) readKey(line []byte) error {
	rec, err := ParseRecord(line)
	if err != nil {
		return err
	}
	if rec.Kind != KindKey || r.size() == 0 {
		return errPruned
	}
	*r = append(*r, subtree{first: r.size(), root: tlog.RecordHash(line), line: bytes.Clone(line)})
	return nil
}

// readBorder takes the border behind it, which has to hold.
func (p *pruned) readBorder(line []byte) error {
	signed, err := parseCheckpointLine(line)
	if err != nil {
		return err
	}
	text, _ := noteText(signed)
	c, err := parseCheckpoint(text)
	if err != nil {
		return err
	}
	if tree := p.all.frontier(); c != (checkpoint{p.origin, tree.size, tree.root()}) || len(p.keys) == 0 {
		return errPruned
	}
	last := &p.all[len(p.all)-1]
	rec, err := ParseRecord(last.line)
	if err != nil {
		return err
	}
	walk := office{keys: p.keys, named: rec.VKey}
	if err := walk.border(signed, c); err != nil {
		return err
	}
	last.border, p.keys = signed, walk.keys
	return nil
}

func parsePrunedLine(line []byte) (*pruned, error) {
	var l struct {
		Pruned struct {
			Log      string `json:"log"`
			Before   uint64 `json:"before"`
			NoTenant uint64 `json:"no_tenant"`
			VKey     string `json:"vkey"`
		} `json:"pruned"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, errPruned
	}
	p := &pruned{origin: l.Pruned.Log, before: l.Pruned.Before, noTenant: l.Pruned.NoTenant}
	if l.Pruned.VKey != "" {
		p.keys = []officeKey{newOfficeKey(l.Pruned.VKey, p.origin)}
	}
	if !rendersAs(line, appendPrunedLine(nil, p)) || p.before == 0 || p.before > maxLeaves || p.noTenant > p.before {
		return nil, errPruned
	}
	return p, nil
}

func parseTenantLine(line []byte) (t prunedTenant, size uint64, err error) {
	var l struct {
		Tenant struct {
			Name  string `json:"name"`
			Size  uint64 `json:"size"`
			Last  uint64 `json:"last"`
			Waits bool   `json:"waits"`
		} `json:"tenant"`
	}
	if json.Unmarshal(line, &l) != nil {
		return t, 0, errPruned
	}
	t, size = prunedTenant{name: l.Tenant.Name, last: l.Tenant.Last, waits: l.Tenant.Waits}, l.Tenant.Size
	if !rendersAs(line, appendTenantLine(nil, t, size)) || t.name == "" || size == 0 || t.last == 0 {
		return t, 0, errPruned
	}
	return t, size, nil
}

// inOrder reports whether those who wait come first, and the others by their
// names, and nobody twice.
func inOrder(tenants []prunedTenant) bool {
	seen := make(map[string]bool, len(tenants))
	for i, t := range tenants {
		if seen[t.name] || i > 0 && !tenants[i-1].waits && (t.waits || compareSpelled(tenants[i-1], t) >= 0) {
			return false
		}
		seen[t.name] = true
	}
	return true
}

func compareSpelled(a, b prunedTenant) int {
	return strings.Compare(string(appendText(nil, a.name, 0)), string(appendText(nil, b.name, 0)))
}
