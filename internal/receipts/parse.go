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
	if p.again = appendFields(p.again[:0], r, 0); string(p.again) != p.s {
		return errors.New("not in the one spelling of a record")
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

// parser reads a record's members. It is lenient about order and repetition,
// since rendering again finds both.
type parser struct {
	s     string
	at    int
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
	p.at = len(`{"v":1`)
	for p.at < len(p.s) {
		name, err := p.name(',')
		if err != nil {
			return err
		}
		if err := p.member(r, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) member(r *Record, name string) (err error) {
	switch name {
	case "kind":
		err = text(p, &r.Kind)
	case "id":
		err = text(p, &r.ID)
	case "t":
		err = moment(p, &r.Time)
	case "seq":
		err = integer(p, &r.Seq)
	case "tenant":
		err = text(p, &r.Tenant)
	case "caller":
		err = text(p, &r.Caller)
	case "key":
		err = text(p, &r.Key)
	case "principal":
		err = text(p, &r.Principal)
	case "chain":
		err = p.chain(r)
	case "service":
		err = text(p, &r.Service)
	case "action":
		err = text(p, &r.Action)
	case "method":
		err = text(p, &r.Method)
	case "params":
		r.Params = new(ParamsHash)
		err = p.object(func(name string) error {
			switch name {
			case "alg":
				return text(p, &r.Params.Alg)
			case "hash":
				return text(p, &r.Params.Hash)
			case "key":
				return text(p, &r.Params.Key)
			}
			return errSyntax
		})
	case "decision":
		err = text(p, &r.Decision)
	case "code":
		err = text(p, &r.Code)
	case "limit":
		err = text(p, &r.Limit)
	case "status":
		err = integer(p, &r.Status)
	case "in":
		err = integer(p, &r.In)
	case "out":
		err = integer(p, &r.Out)
	case "ending":
		err = text(p, &r.Ending)
	case "queue_us":
		err = integer(p, &r.QueueMicros)
	case "upstream_us":
		err = integer(p, &r.UpstreamMicros)
	case "total_us":
		err = integer(p, &r.TotalMicros)
	case "request_id":
		err = text(p, &r.RequestID)
	case "client_addr":
		err = text(p, &r.ClientAddr)
	case "replica":
		err = text(p, &r.Replica)
	case "recovery":
		r.Recovery = new(Recovery)
		err = p.object(func(name string) error {
			switch name {
			case "file":
				return text(p, &r.Recovery.File)
			case "offset":
				return integer(p, &r.Recovery.Offset)
			case "bytes":
				return integer(p, &r.Recovery.Bytes)
			case "sha256":
				return text(p, &r.Recovery.SHA256)
			case "kept":
				return integer(p, &r.Recovery.Kept)
			}
			return errSyntax
		})
	case "vkey":
		err = text(p, &r.VKey)
	case "heads":
		r.Heads = new(Heads)
		err = p.object(func(name string) error {
			switch name {
			case "count":
				return integer(p, &r.Heads.Count)
			case "root":
				return text(p, &r.Heads.Root)
			}
			return errSyntax
		})
	case "pruned":
		r.Pruned = new(Pruned)
		err = p.object(func(name string) error {
			switch name {
			case "before":
				return integer(p, &r.Pruned.Before)
			case "sha256":
				return text(p, &r.Pruned.SHA256)
			}
			return errSyntax
		})
	case "from":
		err = moment(p, &r.From)
	case "to":
		err = moment(p, &r.To)
	case "count":
		err = integer(p, &r.Count)
	case "reason":
		err = text(p, &r.Reason)
	case "interval":
		r.Interval, err = true, p.literal("true")
	case "cut":
		r.Cut, err = true, p.literal("true")
	default:
		err = fmt.Errorf("member %q is not known to this version", name)
	}
	return err
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

func (p *parser) chain(r *Record) error {
	for open := "["; ; open = "," {
		if err := p.literal(open); err != nil {
			return err
		}
		var link string
		if err := text(p, &link); err != nil {
			return err
		}
		r.Chain = append(r.Chain, link)
		if p.literal("]") == nil {
			return nil
		}
	}
}

func (p *parser) object(member func(name string) error) error {
	for open := byte('{'); ; open = ',' {
		name, err := p.name(open)
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
		if p.literal("}") == nil {
			return nil
		}
	}
}

func (p *parser) literal(want string) error {
	if !strings.HasPrefix(p.s[p.at:], want) {
		return errSyntax
	}
	p.at += len(want)
	return nil
}

// name reads open, a member's name and the colon.
func (p *parser) name(open byte) (string, error) {
	rest := p.s[p.at:]
	if len(rest) < 2 || rest[0] != open || rest[1] != '"' {
		return "", errSyntax
	}
	name, rest, ok := strings.Cut(rest[2:], `"`)
	if !ok || !strings.HasPrefix(rest, ":") {
		return "", errSyntax
	}
	p.at = len(p.s) - len(rest) + 1
	return name, nil
}

func integer[T int | int64 | uint64](p *parser, into *T) error {
	start := p.at
	for p.at < len(p.s) && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.ParseUint(p.s[start:p.at], 10, 53)
	if err != nil {
		return errSyntax
	}
	*into = T(n)
	return nil
}

func moment(p *parser, into *time.Time) error {
	var t string
	err := text(p, &t)
	if err == nil {
		*into, err = readTime(t)
	}
	return err
}

func text[T ~string](p *parser, into *T) error {
	if err := p.literal(`"`); err != nil {
		return err
	}
	rest := p.s[p.at:]
	end := strings.IndexByte(rest, '"')
	if end < 0 {
		return errSyntax
	}
	if escaped := strings.IndexByte(rest[:end], '\\'); escaped >= 0 {
		p.at += escaped
		s, err := p.unescape(rest[:escaped])
		*into = T(s)
		return err
	}
	*into = T(rest[:end]) // the usual text
	p.at += end + 1
	return nil
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
		case p.literal(`"`) == nil:
			b = append(b, '"')
		case p.literal(`\`) == nil:
			b = append(b, '\\')
		case p.literal("u") == nil && p.at+4 <= len(p.s):
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
