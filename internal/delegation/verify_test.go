package delegation_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"agentgw/internal/delegation"
)

// TestAChainHolds, of every length, as it was sent, and all that is to be known of it
// is told.
func TestAChainHolds(t *testing.T) {
	for n := 1; n <= 4; n++ {
		chain := chainOf(n, nil)
		for _, text := range []string{field(chain), strings.Join(chain, ",")} {
			v := verify(text, ask(n))
			if !v.Holds || v.Reason != "" || len(v.Chain.Links) != n || v.Chain.User != "user:alice" ||
				!v.Chain.Issued.Equal(noon) || !v.Chain.Until.Equal(noon.Add(time.Hour)) {
				t.Fatalf("%d links: %+v", n, v)
			}
			for i, l := range v.Chain.Links {
				if want := (delegation.Link{ID: fmt.Sprintf("token-%d", i+1), Agent: fmt.Sprintf("agent:agent-%d", i+1), Hash: sha256.Sum256([]byte(chain[i]))}); l != want {
					t.Errorf("link %d: %+v", i, l)
				}
			}
		}
	}
	old := chainOf(2, at(0, func(l *link) { l.header["kid"], l.key = "root-old", oldRootKey }))
	if v := verify(field(old), ask(2)); !v.Holds {
		t.Errorf("of the root before the last: %+v", v)
	}
}

// TestWhoSigned: a root is one of the gateway's and a child is of the key that its
// parent names, in the one algorithm and type.
func TestWhoSigned(t *testing.T) {
	header := func(i int, name string, value any) func(*link) {
		return at(i, func(l *link) {
			if l.header[name] = value; value == nil {
				delete(l.header, name)
			}
		})
	}
	for _, c := range []struct {
		name string
		n    int
		edit func(*link)
		want delegation.Reason
	}{
		{"a root of somebody else under our kid", 1, at(0, func(l *link) { l.key = strangerKey }), delegation.BadSignature},
		{"a root of the other of our keys", 1, at(0, func(l *link) { l.key = oldRootKey }), delegation.BadSignature},
		{"an unknown kid", 1, header(0, "kid", "root-gone"), delegation.UnknownRoot},
		{"an empty kid", 1, header(0, "kid", ""), delegation.Malformed},
		{"no kid", 1, header(0, "kid", nil), delegation.Malformed},
		{"a root that brings its key", 1, header(0, "jwk", jwkOf(rootKey)), delegation.Malformed},
		{"a root that brings its key instead of a kid", 1, at(0, func(l *link) { delete(l.header, "kid"); l.header["jwk"] = jwkOf(rootKey) }), delegation.Malformed},
		{"alg none", 1, header(0, "alg", "none"), delegation.Malformed},
		{"alg ES256", 1, header(0, "alg", "ES256"), delegation.Malformed},
		{"alg Ed25519, the other name of it", 1, header(0, "alg", "Ed25519"), delegation.Malformed},
		{"alg in lower case", 1, header(0, "alg", "eddsa"), delegation.Malformed},
		{"a child's alg none", 2, header(1, "alg", "none"), delegation.Malformed},
		{"typ JWT", 1, header(0, "typ", "JWT"), delegation.Malformed},
		{"typ at+jwt", 1, header(0, "typ", "at+jwt"), delegation.Malformed},
		{"typ in another case", 1, header(0, "typ", "Agent-Delegation+JWT"), delegation.Malformed},
		{"no typ", 2, header(1, "typ", nil), delegation.Malformed},
		{"jku", 1, header(0, "jku", "https://evil.example/keys"), delegation.Malformed},
		{"x5u", 2, header(1, "x5u", "https://evil.example/cert"), delegation.Malformed},
		{"x5c", 1, header(0, "x5c", []string{"MII"}), delegation.Malformed},
		{"crit", 1, header(0, "crit", []string{"exp"}), delegation.Malformed},
		{"b64", 1, header(0, "b64", false), delegation.Malformed},
		{"zip", 1, header(0, "zip", "DEF"), delegation.Malformed},
		{"a child of another key than its parent names", 2, at(1, func(l *link) { l.key, l.header["jwk"] = strangerKey, jwkOf(strangerKey) }), delegation.WrongKey},
		{"a child with the right key and another's signature", 2, at(1, func(l *link) { l.key = strangerKey }), delegation.BadSignature},
		{"a child that the root signed", 2, at(1, func(l *link) { l.key, l.header["jwk"] = rootKey, jwkOf(rootKey) }), delegation.WrongKey},
		{"a child of a parent that names no key", 2, set(0, "cnf", nil), delegation.WrongKey},
		{"a child with a kid", 2, header(1, "kid", "root-new"), delegation.Malformed},
		{"a child with a kid and no key", 2, at(1, func(l *link) { delete(l.header, "jwk"); l.header["kid"] = "root-new" }), delegation.Malformed},
		{"a child's key of another curve", 2, at(1, func(l *link) { l.header["jwk"].(object)["crv"] = "X25519" }), delegation.Malformed},
		{"a child's key of another type", 2, at(1, func(l *link) { l.header["jwk"].(object)["kty"] = "EC" }), delegation.Malformed},
		{"a child's key with its private part", 2, at(1, func(l *link) { l.header["jwk"].(object)["d"] = b64(l.key.Seed()) }), delegation.Malformed},
		{"a child's key that is too short", 2, at(1, func(l *link) { l.header["jwk"].(object)["x"] = b64(public(l.key)[:31]) }), delegation.Malformed},
		{"a child's key with padding", 2, at(1, func(l *link) { l.header["jwk"].(object)["x"] = b64(public(l.key)) + "=" }), delegation.Malformed},
	} {
		t.Run(c.name, func(t *testing.T) { wantReason(t, verify(field(chainOf(c.n, c.edit)), ask(c.n)), c.want) })
	}

	t.Run("alg HS256 with the public key as secret", func(t *testing.T) {
		claims := strings.Split(chainOf(1, nil)[0], ".")[1]
		input := b64([]byte(`{"typ":"agent-delegation+jwt","alg":"HS256","kid":"root-new"}`)) + "." + claims
		mac := hmac.New(sha256.New, public(rootKey))
		mac.Write([]byte(input))
		wantReason(t, verify(input+"."+b64(mac.Sum(nil)), ask(1)), delegation.Malformed)
	})
	t.Run("nobody is trusted", func(t *testing.T) {
		for _, nobody := range []*delegation.Trust{nil, {}} {
			wantReason(t, delegation.Verify(field(chainOf(1, nil)), nobody, gatewayURI, noon, ask(1)), delegation.UnknownRoot)
		}
	})
}

// TestForWhom: issuer and audience are this gateway and nothing else, in one spelling.
func TestForWhom(t *testing.T) {
	for i := range 2 {
		for _, c := range []struct {
			name  string
			claim string
			value any
			want  delegation.Reason
		}{
			{"another issuer", "iss", "https://other.example", delegation.WrongIssuer},
			{"an issuer with a slash at its end", "iss", gatewayURI + "/", delegation.WrongIssuer},
			{"an issuer in upper case", "iss", "https://GW.example", delegation.WrongIssuer},
			{"no issuer", "iss", nil, delegation.Malformed},
			{"another audience", "aud", "https://other.example", delegation.WrongAudience},
			{"an audience with a slash at its end", "aud", gatewayURI + "/", delegation.WrongAudience},
			{"our audience in a list", "aud", []string{gatewayURI}, delegation.Malformed},
			{"our audience and another", "aud", []string{gatewayURI, "https://other.example"}, delegation.Malformed},
			{"no audience", "aud", nil, delegation.Malformed},
		} {
			t.Run(fmt.Sprintf("link %d: %s", i+1, c.name), func(t *testing.T) {
				wantReason(t, verify(field(chainOf(2, set(i, c.claim, c.value))), ask(2)), c.want)
			})
		}
	}
}

// TestOneSpelling: of what other readers take for the same token, none but the one
// spelling is it.
func TestOneSpelling(t *testing.T) {
	chain := chainOf(2, nil)
	whole, leaf := field(chain), chain[1]
	parts := strings.Split(leaf, ".")
	header := `{"alg":"EdDSA","kid":"root-new","typ":"agent-delegation+jwt"`
	claims := func() string {
		b, err := base64.RawURLEncoding.DecodeString(strings.Split(chain[0], ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(b), "}")
	}()
	stray := func(part string) string { // sets bits of the last character that no byte needs
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		last := strings.IndexByte(alphabet, part[len(part)-1])
		return part[:len(part)-1] + string(alphabet[last|1])
	}
	if len(parts[2])%4 != 2 || stray(parts[2]) == parts[2] {
		t.Fatal("a signature has four bits that no byte needs")
	}
	for name, text := range map[string]string{
		"nothing":                            "",
		"a comma":                            ",",
		"a comma at the end":                 whole + ",",
		"a comma at the beginning":           "," + whole,
		"two commas":                         chain[0] + ",," + chain[1],
		"a space before it":                  " " + whole,
		"a space behind it":                  whole + " ",
		"a space before the comma":           chain[0] + " ," + chain[1],
		"a tab behind the comma":             chain[0] + ",\t" + chain[1],
		"a space within":                     chain[0] + ", " + parts[0] + ". " + parts[1] + "." + parts[2],
		"a line end within":                  chain[0] + ", " + parts[0] + "." + parts[1] + ".\n" + parts[2],
		"a line end in base64":               chain[0] + ", " + leaf[:40] + "\n" + leaf[40:],
		"padding":                            whole + "==",
		"padding of the payload":             chain[0] + ", " + parts[0] + "." + parts[1] + "=." + parts[2],
		"bits that no byte needs":            chain[0] + ", " + parts[0] + "." + parts[1] + "." + stray(parts[2]),
		"the other alphabet":                 strings.NewReplacer("-", "+", "_", "/").Replace(whole),
		"two parts":                          chain[0] + ", " + parts[0] + "." + parts[1],
		"four parts":                         whole + ".",
		"five parts, as a JWE has":           chain[0] + ", " + leaf + ".AAAA.AAAA",
		"dots":                               strings.Repeat(".", delegation.MaxBytes),
		"commas":                             strings.Repeat(",", delegation.MaxBytes),
		"no signature":                       chain[0] + ", " + parts[0] + "." + parts[1] + ".",
		"no payload":                         chain[0] + ", " + parts[0] + ".." + parts[2],
		"the JSON serialisation":             `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"five links":                         field(append(chainOf(4, nil), leaf)),
		"over 8 KiB":                         field(chainOf(1, set(0, "sub", "user:"+strings.Repeat("x", delegation.MaxBytes)))),
		"a member of the header twice":       jws(header+`,"alg":"EdDSA"}`, claims+"}", rootKey),
		"a claim twice":                      jws(header+"}", claims+`,"sub":"user:alice"}`, rootKey),
		"a claim twice in an object":         jws(header+"}", strings.Replace(claims, `"act":{`, `"act":{"sub":"agent:x",`, 1)+"}", rootKey),
		"a constraint twice":                 jws(header+"}", strings.Replace(claims, `"constraints":{`, `"constraints":{"size":{"max":5},`, 1)+"}", rootKey),
		"a claim that nobody knows":          jws(header+"}", claims+`,"only_on":"monday"}`, rootKey),
		"a claim in another case":            jws(header+"}", strings.Replace(claims, `"sub"`, `"Sub"`, 1)+"}", rootKey),
		"something behind the claims":        jws(header+"}", claims+`}{}`, rootKey),
		"something behind the header":        jws(header+"}{}", claims+"}", rootKey),
		"claims that are not UTF-8":          jws(header+"}", strings.Replace(claims, "alice", "alic\xff", 1)+"}", rootKey),
		"a lone surrogate":                   jws(header+"}", strings.Replace(claims, "alice", `alic\ud800`, 1)+"}", rootKey),
		"a claim of nothing":                 jws(header+"}", "null", rootKey),
		"claims as a list":                   jws(header+"}", "[]", rootKey),
		"a header of nothing":                jws("null", claims+"}", rootKey),
		"claims that nest for ever":          jws(header+"}", strings.Repeat("[", 3000), rootKey),
		"a number with an exponent":          jws(header+"}", strings.Replace(claims, `"exp":1767272400`, `"exp":1.7672724e9`, 1)+"}", rootKey),
		"a number with a fraction":           jws(header+"}", strings.Replace(claims, `"exp":1767272400`, `"exp":1767272400.5`, 1)+"}", rootKey),
		"a time in quotes":                   jws(header+"}", strings.Replace(claims, `"exp":1767272400`, `"exp":"1767272400"`, 1)+"}", rootKey),
		"a time beyond what a number can be": jws(header+"}", strings.Replace(claims, `"exp":1767272400`, `"exp":99999999999999999999`, 1)+"}", rootKey),
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, verify(text, ask(2)), delegation.Malformed) })
	}
	// One that would hold if it were shorter.
	for _, details := range []int{20, 40} {
		text := field(chainOf(1, func(l *link) {
			all := l.claims["authorization_details"].([]any)
			for range details {
				all = append(all, grant("github", []string{"read"}, object{"owner": object{"const": strings.Repeat("x", 100)}}))
			}
			l.claims["authorization_details"] = all
		}))
		if v := verify(text, ask(1)); v.Holds != (len(text) <= delegation.MaxBytes) || v.Holds != (details == 20) {
			t.Errorf("%d bytes: %+v", len(text), v)
		}
	}
	if v := verify(jws(header+"}", claims+"}", rootKey), ask(1)); !v.Holds {
		t.Errorf("what these were made of does not hold: %+v", v)
	}
}

// TestClaimsOfTheRightForm: each has to be there, and be what it is.
func TestClaimsOfTheRightForm(t *testing.T) {
	detail := func(edit func(d object)) []any {
		d := grant("github", []string{"read"}, nil)
		edit(d)
		return []any{d}
	}
	bound := func(c any) []any { return detail(func(d object) { d["constraints"] = object{"owner": c} }) }
	many := make([]any, 65)
	for i := range many {
		many[i] = grant("github", []string{"read"}, nil)
	}
	for _, c := range []struct {
		claim  string
		values []any
	}{
		{"sub", []any{nil, "", "alice", "user:", "agent:alice", "User:alice", "user:a\nb", 7}},
		{"act", []any{nil, object{}, object{"sub": "planner"}, object{"sub": "agent:"}, "agent:planner", object{"sub": "agent:x", "act": object{"sub": "agent:y"}}}},
		{"tenant", []any{7, object{}}},
		{"cnf", []any{object{}, object{"jkt": ""}, object{"jkt": "x"}, object{"jkt": jkt(rootKey) + "="}, object{"jkt": jkt(rootKey)[:42]}, object{"jwk": jwkOf(rootKey)}, "x"}},
		{"jti", []any{nil, "", strings.Repeat("x", 65), "a b", "a,b", "ü", "a/b", 7}},
		{"par", []any{jkt(rootKey)}},
		{"del_depth", []any{nil, -1, 4, 1.5, "1"}},
		{"iat", []any{nil, 0, -1, noon.Unix() + 3600}},
		{"nbf", []any{nil, 0, -1, noon.Unix() + 3600}},
		{"exp", []any{nil, 0, -1, noon.Unix()}},
		{"authorization_details", []any{
			nil, []any{}, object{}, many, detail(func(d object) { d["type"] = "payment" }), detail(func(d object) { delete(d, "type") }),
			detail(func(d object) { d["service"] = "" }), detail(func(d object) { delete(d, "actions") }), detail(func(d object) { d["actions"] = []string{} }),
			detail(func(d object) { d["actions"] = []string{""} }), detail(func(d object) { d["actions"] = "read" }), detail(func(d object) { d["locations"] = []string{"x"} }),
			bound(object{}), bound(nil), bound("acme"), bound(object{"regex": ".*"}), bound(object{"const": nil}), bound(object{"const": object{}}), bound(object{"const": []int{1}}),
			bound(object{"enum": []any{}}), bound(object{"enum": "a"}), bound(object{"enum": []any{nil}}), bound(object{"prefix": 1}), bound(object{"max": "1"}),
			bound(object{"max": true}), bound(object{"const": "a", "max": 1}), bound(object{"enum": []any{"a"}, "prefix": "a"}),
		}},
	} {
		for i, value := range c.values {
			t.Run(fmt.Sprintf("%s %d", c.claim, i), func(t *testing.T) {
				wantReason(t, verify(field(chainOf(1, set(0, c.claim, value))), ask(1)), delegation.Malformed)
			})
		}
	}
	for _, text := range []string{`{"const":1e2}`, `{"max":1e2}`, `{"max":-0}`, `{"const":1E400}`} {
		token := chainOf(1, set(0, "authorization_details", bound("HERE")))[0]
		b, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		token = jws(`{"alg":"EdDSA","kid":"root-new","typ":"agent-delegation+jwt"}`, strings.Replace(string(b), `"HERE"`, text, 1), rootKey)
		wantReason(t, verify(token, ask(1)), delegation.Malformed)
	}
	wantReason(t, verify(field(chainOf(2, set(1, "par", nil))), ask(2)), delegation.Malformed)
	wantReason(t, verify(field(chainOf(2, set(1, "par", "x"))), ask(2)), delegation.Malformed)
}

// TestOneBit of any character of any part of any link: it is another token.
func TestOneBit(t *testing.T) {
	chain := chainOf(3, nil)
	whole, refused := field(chain), 0
	for i := range len(whole) {
		for _, bit := range []byte{1, 2, 16} {
			b := []byte(whole)
			b[i] ^= bit
			if v := verify(string(b), ask(3)); v.Holds {
				t.Fatalf("bit %d of byte %d may be either", bit, i)
			}
			refused++
		}
	}
	if refused < 3*3*300 {
		t.Errorf("only %d were tried", refused)
	}
}

// TestLinksBelongTogether: no link stands in a chain but where it was made for.
func TestLinksBelongTogether(t *testing.T) {
	four := chainOf(4, nil)
	other := chainOf(4, func(l *link) { l.claims["jti"] = fmt.Sprint("other-", l.i) })
	part := func(i int, text string) string { return strings.Split(text, ".")[i] }
	swapped := func(i int) []string { // one segment of the leaf is another token's
		p := strings.Split(four[3], ".")
		p[i] = part(i, other[3])
		return append(four[:3:3], strings.Join(p, "."))
	}
	for name, c := range map[string]struct {
		chain []string
		want  delegation.Reason
	}{
		"the payload of another":          {swapped(1), delegation.BadSignature},
		"the signature of another":        {swapped(2), delegation.BadSignature},
		"the first two reversed":          {[]string{four[1], four[0], four[2], four[3]}, delegation.Malformed},
		"the last two reversed":           {[]string{four[0], four[1], four[3], four[2]}, delegation.WrongKey},
		"no root":                         {four[1:], delegation.Malformed},
		"the second missing":              {[]string{four[0], four[2], four[3]}, delegation.WrongKey},
		"the third missing":               {[]string{four[0], four[1], four[3]}, delegation.WrongKey},
		"the root twice":                  {[]string{four[0], four[0], four[1]}, delegation.Malformed},
		"the second twice":                {[]string{four[0], four[1], four[1], four[2]}, delegation.WrongKey},
		"a child of another root":         {[]string{four[0], other[1]}, delegation.WrongParent},
		"a grandchild of another root":    {[]string{four[0], four[1], other[2]}, delegation.WrongParent},
		"one jti for two of them":         {chainOf(2, set(1, "jti", "token-1")), delegation.Malformed},
		"the hash of its parent's parent": {chainOf(3, set(2, "par", hashOf(chainOf(1, nil)[0]))), delegation.WrongParent},
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, verify(field(c.chain), ask(len(c.chain))), c.want) })
	}
	// All keys the same, so that the hash of the parent alone tells.
	same := func(l *link) {
		l.claims["cnf"] = object{"jkt": jkt(holder(0))}
		if l.i > 0 {
			l.key, l.header["jwk"] = holder(0), jwkOf(holder(0))
		}
	}
	one := chainOf(4, same)
	for name, chain := range map[string][]string{
		"the second missing": {one[0], one[2], one[3]}, "the third twice": {one[0], one[1], one[2], one[2]}, "reversed": {one[0], one[2], one[1]},
	} {
		t.Run("of one key: "+name, func(t *testing.T) { wantReason(t, verify(field(chain), ask(len(chain))), delegation.WrongParent) })
	}
}

// TestNothingIsWidened: each of what a link may say, widened by one at each position
// of the chain, while all else is as it should be.
func TestNothingIsWidened(t *testing.T) {
	details := func(actions []string, constraints object) []any { return []any{grant("github", actions, constraints)} }
	tight := object{"owner": object{"const": "acme"}, "size": object{"max": 100}}
	without := func(name string, more object) object {
		c := maps.Clone(tight)
		delete(c, name)
		maps.Copy(c, more)
		return c
	}
	for i := 1; i < 4; i++ {
		for name, edit := range map[string]func(*link){
			"the user":        func(l *link) { l.claims["sub"] = "user:bob" },
			"the user's case": func(l *link) { l.claims["sub"] = "user:Alice" },
			"the tenant":      func(l *link) { l.claims["tenant"] = "other" },
			"no tenant":       func(l *link) { delete(l.claims, "tenant") },
			"the end":         func(l *link) { l.claims["exp"] = noon.Unix() + 3601 },
			"the beginning":   func(l *link) { l.claims["nbf"] = noon.Unix() - 1 },
			"the depth":       func(l *link) { l.claims["del_depth"] = 4 - i },
			"the service":     func(l *link) { l.claims["authorization_details"] = []any{grant("gitlab", []string{"read"}, tight)} },
			"a second service": func(l *link) {
				l.claims["authorization_details"] = append(details([]string{"read"}, tight), grant("gitlab", []string{"read"}, tight))
			},
			"an action":            func(l *link) { l.claims["authorization_details"] = details([]string{"read", "write", "delete"}, tight) },
			"no constraints":       func(l *link) { l.claims["authorization_details"] = details([]string{"read"}, nil) },
			"no constraint on one": func(l *link) { l.claims["authorization_details"] = details([]string{"read"}, without("owner", nil)) },
			"another value": func(l *link) {
				l.claims["authorization_details"] = details([]string{"read"}, without("owner", object{"owner": object{"const": "evil"}}))
			},
			"one more value": func(l *link) {
				l.claims["authorization_details"] = details([]string{"read"}, without("owner", object{"owner": object{"enum": []string{"acme", "evil"}}}))
			},
			"a prefix in place of a value": func(l *link) {
				l.claims["authorization_details"] = details([]string{"read"}, without("owner", object{"owner": object{"prefix": "acme"}}))
			},
			"a larger number": func(l *link) {
				l.claims["authorization_details"] = details([]string{"read"}, without("size", object{"size": object{"max": 101}}))
			},
		} {
			t.Run(fmt.Sprintf("%s at link %d", name, i+1), func(t *testing.T) {
				wantReason(t, verify(field(chainOf(4, at(i, edit))), ask(4)), delegation.Widened)
				// Where it goes on from there it is found where it came in.
				if v := verify(field(chainOf(4, func(l *link) {
					if l.i >= i {
						edit(l)
					}
				})), ask(4)); v.Holds || !strings.HasPrefix(v.Detail, fmt.Sprintf("link %d:", i+1)) {
					t.Errorf("%+v", v)
				}
			})
		}
	}
	// The union of two details of the parent is not one of them.
	union := chainOf(2, func(l *link) {
		l.claims["authorization_details"] = []any{grant("github", []string{"read"}, nil), grant("github", []string{"write"}, nil)}
		if l.i == 1 {
			l.claims["authorization_details"] = []any{grant("github", []string{"read", "write"}, nil)}
		}
	})
	wantReason(t, verify(field(union), ask(2)), delegation.Widened)
}

// TestNarrower: what a link may take away, and the call that then is refused.
func TestNarrower(t *testing.T) {
	a := ask(2)
	for name, c := range map[string]struct {
		claim string
		value any
	}{
		"ends earlier": {"exp", noon.Unix() + 61}, "begins later": {"nbf", noon.Unix() + 30}, "is the last": {"del_depth", 0}, "names no key": {"cnf", nil},
		"one action":       {"authorization_details", []any{grant("github", []string{"read"}, object{"owner": object{"const": "acme"}, "size": object{"max": 7}})}},
		"one more bound":   {"authorization_details", []any{grant("github", []string{"read"}, object{"owner": object{"const": "acme"}, "size": object{"const": 7}, "free": object{"enum": []any{"x"}}}), grant("github", []string{"read"}, object{"owner": object{"enum": []string{"acme"}}, "size": object{"enum": []int{7, 8}}})}},
		"a smaller number": {"authorization_details", []any{grant("github", []string{"read"}, object{"owner": object{"const": "acme"}, "size": object{"max": 99.5}})}},
	} {
		if v := verify(field(chainOf(2, set(1, c.claim, c.value))), a); !v.Holds {
			t.Errorf("%s: %+v", name, v)
		}
	}
	write := ask(2)
	write.Action = "write"
	wantReason(t, verify(field(chainOf(2, set(1, "authorization_details", []any{grant("github", []string{"read"}, object{"owner": object{"const": "acme"}, "size": object{"max": 7}})}))), write), delegation.NotGranted)
}

// TestTheHolder: a chain is good for the agent alone that its last link names.
func TestTheHolder(t *testing.T) {
	two := chainOf(2, nil)
	for name, c := range map[string]struct {
		chain []string
		ask   func(*delegation.Ask)
		want  delegation.Reason
	}{
		"the parent's agent presents the child":   {two, func(a *delegation.Ask) { a.Agent = "agent-1" }, delegation.WrongAgent},
		"the child's agent presents the parent":   {two[:1], func(a *delegation.Ask) { a.Agent = "agent-2" }, delegation.WrongAgent},
		"a stranger presents it":                  {two, func(a *delegation.Ask) { a.Agent = "eve" }, delegation.WrongAgent},
		"an agent without a name":                 {two, func(a *delegation.Ask) { a.Agent = "" }, delegation.WrongAgent},
		"the agent's name in upper case":          {two, func(a *delegation.Ask) { a.Agent = "Agent-2" }, delegation.WrongAgent},
		"the agent's name with the prefix":        {two, func(a *delegation.Ask) { a.Agent = "agent:agent-2" }, delegation.WrongAgent},
		"for another user":                        {two, func(a *delegation.Ask) { a.User = "bob" }, delegation.WrongUser},
		"for nobody":                              {two, func(a *delegation.Ask) { a.User = "" }, delegation.WrongUser},
		"of another tenant":                       {two, func(a *delegation.Ask) { a.Tenant = "other" }, delegation.WrongTenant},
		"of no tenant":                            {two, func(a *delegation.Ask) { a.Tenant = "" }, delegation.WrongTenant},
		"of a tenant, and the token of none":      {chainOf(2, func(l *link) { delete(l.claims, "tenant") }), func(*delegation.Ask) {}, delegation.WrongTenant},
		"another service":                         {two, func(a *delegation.Ask) { a.Service = "gitlab" }, delegation.NotGranted},
		"another action":                          {two, func(a *delegation.Ask) { a.Action = "delete" }, delegation.NotGranted},
		"an action's name in upper case":          {two, func(a *delegation.Ask) { a.Action = "READ" }, delegation.NotGranted},
		"parameters that do not keep to it":       {two, func(a *delegation.Ask) { a.Params = []byte(`{"owner":"evil","size":7}`) }, delegation.Constrained},
		"a constrained parameter that is missing": {two, func(a *delegation.Ask) { a.Params = []byte(`{"owner":"acme"}`) }, delegation.Constrained},
		"no parameters":                           {two, func(a *delegation.Ask) { a.Params = nil }, delegation.Constrained},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(len(c.chain))
			c.ask(&a)
			wantReason(t, verify(field(c.chain), a), c.want)
		})
	}
}

// TestTheClock: a chain holds until the second before its end, and from a minute before
// its beginning, which is how far a holder's clock may be ahead. A child has no more.
func TestTheClock(t *testing.T) {
	over := noon.Add(time.Hour)
	for _, c := range []struct {
		name string
		at   time.Time
		edit func(*link)
		want delegation.Reason // "": it holds
	}{
		{"the last instant", over.Add(-1), nil, ""},
		{"a second before the end", over.Add(-time.Second), nil, ""},
		{"the end", over, nil, delegation.Expired},
		{"the end and a minute", over.Add(time.Minute), nil, delegation.Expired},
		{"a second before the beginning", noon.Add(-time.Second), nil, ""},
		{"as early as may be", noon.Add(-delegation.Leeway), nil, ""},
		{"earlier", noon.Add(-delegation.Leeway - 1), nil, delegation.NotYet},
		{"a child that begins later", noon.Add(time.Minute), set(1, "nbf", noon.Unix()+180), delegation.NotYet},
		{"a child of the future", noon.Add(time.Minute), set(1, "iat", noon.Unix()+180), delegation.NotYet},
		{"a child at its own end", noon.Add(time.Minute), set(1, "exp", noon.Unix()+60), delegation.Expired},
		{"a child that has the leeway on top of its parent's end", over.Add(-time.Second), set(1, "exp", over.Unix()+30), delegation.Widened},
	} {
		v := delegation.Verify(field(chainOf(2, c.edit)), trust, gatewayURI, c.at, ask(2))
		if v.Holds != (c.want == "") || v.Reason != c.want {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	if delegation.Leeway > time.Minute {
		t.Errorf("the leeway is %s", delegation.Leeway)
	}
	day := int64(24 * 3600)
	if v := verify(field(chainOf(1, set(0, "exp", noon.Unix()+day))), ask(1)); !v.Holds {
		t.Errorf("a day: %+v", v)
	}
	wantReason(t, verify(field(chainOf(1, set(0, "exp", noon.Unix()+day+1))), ask(1)), delegation.Malformed)
	wantReason(t, verify(field(chainOf(1, func(l *link) { l.claims["exp"], l.claims["iat"] = noon.Unix()+day, noon.Unix()-1 })), ask(1)), delegation.Malformed)
}

// TestRevoking: one link of a chain, its user or one of its agents, and every chain
// that is like it but for that.
func TestRevoking(t *testing.T) {
	three := field(chainOf(3, nil))
	before, same, after := noon.Add(-1), noon, noon.Add(time.Minute)
	for _, c := range []struct {
		name    string
		revoked delegation.Revocations
		holds   bool
	}{
		{"nothing", delegation.Revocations{}, true},
		{"the root", delegation.Revocations{IDs: map[string]bool{"token-1": true}}, false},
		{"the middle", delegation.Revocations{IDs: map[string]bool{"token-2": true}}, false},
		{"the leaf", delegation.Revocations{IDs: map[string]bool{"token-3": true}}, false},
		{"another", delegation.Revocations{IDs: map[string]bool{"token-4": true}}, true},
		{"the user", delegation.Revocations{Users: map[string]time.Time{"alice": after}}, false},
		{"the user, in the second of the root", delegation.Revocations{Users: map[string]time.Time{"alice": same}}, false},
		{"the user, before the root", delegation.Revocations{Users: map[string]time.Time{"alice": before}}, true},
		{"another user", delegation.Revocations{Users: map[string]time.Time{"bob": after, "agent-1": after}}, true},
		{"the first agent", delegation.Revocations{Agents: map[string]time.Time{"agent-1": after}}, false},
		{"the middle agent", delegation.Revocations{Agents: map[string]time.Time{"agent-2": after}}, false},
		{"the last agent", delegation.Revocations{Agents: map[string]time.Time{"agent-3": after}}, false},
		{"the last agent, before the root", delegation.Revocations{Agents: map[string]time.Time{"agent-3": before}}, true},
		{"another agent", delegation.Revocations{Agents: map[string]time.Time{"agent-4": after, "alice": after}}, true},
		{"an agent that is gone", delegation.Revocations{Gone: map[string]bool{"agent-2": true}}, false},
		{"the middle agent is none", delegation.Revocations{Known: func(a string) bool { return a != "agent-2" }}, false},
		{"others are none", delegation.Revocations{Known: func(a string) bool { return strings.HasPrefix(a, "agent-") && a < "agent-4" }}, true},
		{"another agent that is gone", delegation.Revocations{Gone: map[string]bool{"agent-4": true}}, true},
	} {
		v := delegation.Verify(three, &delegation.Trust{Roots: trust.Roots, Revoked: c.revoked}, gatewayURI, after, ask(3))
		if v.Holds != c.holds || !c.holds && (v.Reason != delegation.Revoked || len(v.Chain.Links) != 3) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	// A link that a holder dates behind the revocation is of the old root all the same.
	later := chainOf(3, set(2, "iat", noon.Unix()+120))
	v := delegation.Verify(field(later), &delegation.Trust{Roots: trust.Roots, Revoked: delegation.Revocations{Agents: map[string]time.Time{"agent-3": after}}}, gatewayURI, noon.Add(3*time.Minute), ask(3))
	wantReason(t, v, delegation.Revoked)
}

// TestOnlyWhatIsSignedIsTold: of a chain that does not hold, no word that nobody signed
// reaches a record.
func TestOnlyWhatIsSignedIsTold(t *testing.T) {
	for n, text := range []string{
		0: field(chainOf(3, at(0, func(l *link) { l.key = strangerKey }))),
		1: field(chainOf(3, at(1, func(l *link) { l.key = strangerKey }))),
		2: field(chainOf(3, at(2, func(l *link) { l.key = strangerKey }))),
	} {
		if v := verify(text, ask(3)); v.Holds || len(v.Chain.Links) != n {
			t.Errorf("link %d is not signed: %+v", n+1, v)
		}
	}
}

// TestThumbprint is the example of RFC 8037, appendix A.3.
func TestThumbprint(t *testing.T) {
	b, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	if got := delegation.Thumbprint(ed25519.PublicKey(b)); got != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("%s", got)
	}
}
