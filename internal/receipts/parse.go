package receipts

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLine is the longest line that readers accept, its line end not counted.
const maxLine = 65535

// ParseRecord reads one record line, without its line end. It accepts only the
// one spelling that a writer of this version produces: it renders what it has
// read and compares, so no two lines mean the same record. It cannot check the
// tag, which takes the writer's key, nor whether the record is in any log.
func ParseRecord(line []byte) (*Record, error) {
	r := new(Record)
	if err := new(parser).parse(string(line), r); err != nil {
		return nil, err
	}
	return r, nil
}

// parse reads a record line into r, whose texts are parts of it.
func (p *parser) parse(line string, r *Record) error {
	if err := p.read(line, r); err != nil {
		return err
	}
	if p.again = appendFields(p.again[:0], r, 0); string(p.again) != p.s {
		return errors.New("not in the one spelling of a record")
	}
	return nil
}

// read is parse for a line that is known to be in its one spelling: of that it says
// the same, in half the time, and of another it may say anything.
func (p *parser) read(line string, r *Record) error {
	body := len(line) - tagLine
	if body < 0 || !strings.HasPrefix(line[body:], tagMember) || !strings.HasSuffix(line, `"}`) {
		return errors.New("a record line has to end with its tag")
	}
	if err := checkTagText(line[body+len(tagMember) : len(line)-len(`"}`)]); err != nil {
		return err
	}
	*r, p.s, p.at = Record{}, line[:body], 0
	if err := p.record(r); err != nil {
		return fmt.Errorf("column %d: %w", p.at+1, err)
	}
	if !r.Kind.Valid() {
		return fmt.Errorf("kind %q is not known to this version", r.Kind)
	}
	if r.Ending != "" && !r.Ending.Valid() {
		return fmt.Errorf("ending %q is not known to this version", r.Ending)
	}
	if !validDecision(r.Decision) {
		return fmt.Errorf("decision %q is not known to this version", r.Decision)
	}
	if r.ID == "" {
		return errors.New("a record has an id")
	}
	if (r.Kind == KindHeads) != (r.Heads != nil) {
		return errors.New("a record has heads if it is of that kind, and only then")
	}
	if (r.Kind == KindPruned) != (r.Pruned != nil) {
		return errors.New("a record says what was removed if it is of that kind, and only then")
	}
	if r.Kind.counts() && r.Count == 0 {
		return errors.New("a record of that kind stands for one attempt at least")
	}
	return nil
}

// checkTagText wants 22 characters of URL-safe base64, the last of which
// carries two bits only: otherwise sixteen texts would be the same tag.
func checkTagText(text string) error {
	for i := range len(text) {
		if !inTag[text[i]] {
			return errors.New("the tag is not base64")
		}
	}
	switch text[len(text)-1] {
	case 'A', 'Q', 'g', 'w':
		return nil
	}
	return errors.New("the tag is not in its one spelling")
}

// inTag are the characters of URL-safe base64.
var inTag = func() (in [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		in[c] = true
	}
	return in
}()

// parser reads a record's members in the order that appendFields writes them in, each
// where it is there. It is lenient about all else that rendering again finds.
type parser struct {
	s     string
	at    int
	err   error  // the first: nothing is read behind it
	again []byte // buffer
}

var errSyntax = errors.New("not a record")

func (p *parser) record(r *Record) error {
	if !strings.HasPrefix(p.s, `{"v":1,"kind":`) {
		if strings.HasPrefix(p.s, `{"v":`) {
			return errors.New("a record of a version that this program does not know")
		}
		return errSyntax
	}
	p.at, p.err = len(`{"v":1`), nil
	text(p, `,"kind":`, &r.Kind)
	text(p, `,"id":`, &r.ID)
	p.moment(`,"t":`, &r.Time)
	integer(p, `,"seq":`, &r.Seq)
	text(p, `,"tenant":`, &r.Tenant)
	text(p, `,"caller":`, &r.Caller)
	text(p, `,"key":`, &r.Key)
	text(p, `,"principal":`, &r.Principal)
	if p.has(`,"chain":[`) {
		p.chain(r)
	}
	text(p, `,"service":`, &r.Service)
	text(p, `,"action":`, &r.Action)
	text(p, `,"method":`, &r.Method)
	if p.has(`,"params":{`) {
		r.Params = new(ParamsHash)
		text(p, `"alg":`, &r.Params.Alg)
		text(p, `,"hash":`, &r.Params.Hash)
		text(p, `,"key":`, &r.Params.Key)
		p.want(`}`)
	}
	text(p, `,"decision":`, &r.Decision)
	text(p, `,"code":`, &r.Code)
	text(p, `,"limit":`, &r.Limit)
	integer(p, `,"status":`, &r.Status)
	integer(p, `,"in":`, &r.In)
	integer(p, `,"out":`, &r.Out)
	integer(p, `,"messages":`, &r.Messages)
	text(p, `,"ending":`, &r.Ending)
	integer(p, `,"queue_us":`, &r.QueueMicros)
	integer(p, `,"upstream_us":`, &r.UpstreamMicros)
	integer(p, `,"total_us":`, &r.TotalMicros)
	text(p, `,"request_id":`, &r.RequestID)
	text(p, `,"client_addr":`, &r.ClientAddr)
	text(p, `,"replica":`, &r.Replica)
	if p.has(`,"recovery":{`) {
		r.Recovery = new(Recovery)
		text(p, `"file":`, &r.Recovery.File)
		integer(p, `,"offset":`, &r.Recovery.Offset)
		integer(p, `,"bytes":`, &r.Recovery.Bytes)
		text(p, `,"sha256":`, &r.Recovery.SHA256)
		integer(p, `,"kept":`, &r.Recovery.Kept)
		p.want(`}`)
	}
	text(p, `,"vkey":`, &r.VKey)
	if p.has(`,"heads":{`) {
		r.Heads = new(Heads)
		integer(p, `"count":`, &r.Heads.Count)
		text(p, `,"root":`, &r.Heads.Root)
		p.want(`}`)
	}
	if p.has(`,"pruned":{`) {
		r.Pruned = new(Pruned)
		integer(p, `"before":`, &r.Pruned.Before)
		text(p, `,"sha256":`, &r.Pruned.SHA256)
		p.want(`}`)
	}
	p.moment(`,"from":`, &r.From)
	p.moment(`,"to":`, &r.To)
	integer(p, `,"count":`, &r.Count)
	text(p, `,"reason":`, &r.Reason)
	r.Interval = p.has(`,"interval":true`)
	r.Cut = p.has(`,"cut":true`)
	if p.err == nil && p.at < len(p.s) {
		p.err = p.unknown()
	}
	return p.err
}

// unknown says what stands where no member does that may stand there.
func (p *parser) unknown() error {
	rest, ok := strings.CutPrefix(p.s[p.at:], `,"`)
	name, _, closed := strings.Cut(rest, `":`)
	if !ok || !closed {
		return errSyntax
	}
	return fmt.Errorf("member %q is not known to this version, or not in its place", name)
}

// readTime is time.Parse for timeLayout, many times as fast. What is not written
// as appendTime does is left to that, to say why.
func readTime(s string) (time.Time, error) {
	if len(s) != len(timeLayout) {
		return time.Parse(timeLayout, s)
	}
	n := func(from, to int) (n int) {
		for _, c := range []byte(s[from:to]) {
			n = n*10 + int(c) - '0'
		}
		return n
	}
	t := time.Date(n(0, 4), time.Month(n(5, 7)), n(8, 10), n(11, 13), n(14, 16), n(17, 19), n(20, 26)*1000, time.UTC)
	var again [len(timeLayout)]byte
	if string(appendTime(again[:0], t)) != s {
		return time.Parse(timeLayout, s)
	}
	return t, nil
}

// has reads what is wanted, if it is there.
func (p *parser) has(what string) bool {
	if p.err != nil || !strings.HasPrefix(p.s[p.at:], what) {
		return false
	}
	p.at += len(what)
	return true
}

// want reads what has to be there.
func (p *parser) want(what string) {
	if !p.has(what) {
		p.fail(errSyntax)
	}
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// chain reads from its first text on.
func (p *parser) chain(r *Record) {
	for name := ""; ; name = "," {
		var link string
		text(p, name, &link)
		r.Chain = append(r.Chain, link)
		if p.err != nil || p.has("]") {
			return
		}
		if !strings.HasPrefix(p.s[p.at:], ",") {
			p.fail(errSyntax)
			return
		}
	}
}

func integer[T int | int64 | uint64](p *parser, name string, into *T) {
	if !p.has(name) {
		return
	}
	start := p.at
	for p.at < len(p.s) && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.ParseUint(p.s[start:p.at], 10, 53)
	if err != nil {
		p.fail(errSyntax)
	}
	*into = T(n)
}

func (p *parser) moment(name string, into *time.Time) {
	var t string
	text(p, name, &t)
	if t == "" {
		return // rendering again finds that it is none
	}
	var err error
	if *into, err = readTime(t); err != nil {
		p.fail(err)
	}
}

func text[T ~string](p *parser, name string, into *T) {
	if !p.has(name) {
		return
	}
	if p.want(`"`); p.err != nil {
		return
	}
	rest := p.s[p.at:]
	end := strings.IndexByte(rest, '"')
	if end < 0 {
		p.fail(errSyntax)
		return
	}
	if escaped := strings.IndexByte(rest[:end], '\\'); escaped >= 0 {
		p.at += escaped
		s, err := p.unescape(rest[:escaped])
		if err != nil {
			p.fail(err)
		}
		*into = T(s)
		return
	}
	*into = T(rest[:end]) // the usual text
	p.at += end + 1
}

// unescape reads on from the first backslash of a text that began with head.
func (p *parser) unescape(head string) (string, error) {
	b := []byte(head)
	for p.at < len(p.s) {
		c := p.s[p.at]
		p.at++
		switch {
		case c == '"':
			return string(b), nil
		case c != '\\':
			b = append(b, c)
		case p.has(`"`):
			b = append(b, '"')
		case p.has(`\`):
			b = append(b, '\\')
		case p.has("u") && p.at+4 <= len(p.s):
			r, err := strconv.ParseUint(p.s[p.at:p.at+4], 16, 16)
			if err != nil {
				return "", errSyntax
			}
			p.at += 4
			b = utf8.AppendRune(b, rune(r))
		default:
			return "", errSyntax
		}
	}
	return "", errSyntax
}
