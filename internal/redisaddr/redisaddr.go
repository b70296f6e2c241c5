// Package redisaddr reads the URL that says where a Redis or Valkey is.
//
//	redis://[user:password@]host[:port][/db]                              one server
//	redis+sentinel://[user:password@]host[:port],host[:port]/MASTER[/db]  the master that Sentinels name
//	redis+cluster://[user:password@]host[:port],host[:port]               a Cluster, by some of its nodes
//
// With rediss in place of redis all connections have TLS, and there may be parameters:
// ssl_ca_certs, the file of the certificates that are trusted in place of the system's, and
// ssl_certfile with ssl_keyfile, what the client shows. Sentinels that ask for a password of
// their own have it by sentinel_password, and sentinel_username. What is not a letter or
// digit of a name or password is written as % and two digits.
//
// No error quotes anything of a URL but names of files: the rest may be part of a password.
package redisaddr

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Kind is what there is at an address.
type Kind uint8

// The kinds.
const (
	Single Kind = iota
	Sentinel
	Cluster
)

// Address is where a Redis is, and what it takes to come in. Its text is no secret of
// itself, but holds some: it is not to be printed.
type Address struct {
	Kind                           Kind
	Hosts                          []string // host:port; of one server, Sentinels, or nodes
	User, Password                 string
	SentinelUser, SentinelPassword string
	Master                         string // of Sentinels
	DB                             int
	TLS                            bool
	CAFile, CertFile, KeyFile      string
}

var errScheme = errors.New("is not redis://[user:password@]host:port[/db], or rediss:// for TLS, nor redis+sentinel://host,host/MASTER or redis+cluster://host,host")

// Parse reads a URL. It opens no file: see Address.Config.
func Parse(text string) (a Address, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return a, errScheme
	}
	base, kind, _ := strings.Cut(scheme, "+")
	switch {
	case kind == "sentinel":
		a.Kind = Sentinel
	case kind == "cluster":
		a.Kind = Cluster
	case kind != "" || strings.Contains(scheme, "+"):
		return a, errScheme
	}
	switch base {
	case "redis":
	case "rediss":
		a.TLS = true
	default:
		return a, errScheme
	}
	if strings.Contains(rest, "#") {
		return a, errors.New("has a #: in a password it is written %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if a.User, a.Password, err = userInfo(authority[:at]); err != nil {
			return a, err
		}
		authority = authority[at+1:]
	}
	if a.Hosts, err = hosts(authority, map[Kind]string{Sentinel: "26379"}[a.Kind]); err != nil {
		return a, err
	}
	if a.Kind == Single && len(a.Hosts) > 1 {
		return a, errors.New("names several hosts: those are redis+sentinel://host,host/MASTER or redis+cluster://host,host")
	}
	if err = a.path(path); err != nil {
		return a, err
	}
	return a, a.parameters(query)
}

func userInfo(text string) (user, password string, err error) {
	name, word, found := strings.Cut(text, ":")
	if !found && name != "" {
		return "", "", errors.New("has a user and no password: one without a user is written with a colon, redis://:PASSWORD@host")
	}
	user, errUser := url.PathUnescape(name)
	password, errPassword := url.PathUnescape(word)
	if errUser != nil || errPassword != nil {
		return "", "", errors.New("has a % in its user or password that two digits do not follow: write it %25")
	}
	return user, password, nil
}

func hosts(text, port string) (list []string, err error) {
	if port == "" {
		port = "6379"
	}
	for _, one := range strings.Split(text, ",") {
		host, of := one, port
		if h, p, err := net.SplitHostPort(one); err == nil {
			host, of = h, p
		} else if inside, found := strings.CutPrefix(one, "["); found && strings.HasSuffix(inside, "]") {
			host = strings.TrimSuffix(inside, "]")
		} else if strings.Contains(one, ":") {
			return nil, errors.New("has a host and port that cannot be read: they are host:port, or [address]:port with IPv6")
		}
		if host == "" || strings.ContainsAny(host, " @[]") {
			return nil, errors.New("names no host, or one that cannot be: a / or @ in a password is written %2F or %40")
		}
		if n, err := strconv.ParseUint(of, 10, 16); err != nil || n == 0 {
			return nil, errors.New("has a port that is none: a port is between 1 and 65535, and a / in a password is written %2F")
		}
		list = append(list, net.JoinHostPort(host, of))
	}
	return list, nil
}

func (a *Address) path(path string) error {
	db := path
	if a.Kind == Sentinel {
		master, after, _ := strings.Cut(path, "/")
		name, err := url.PathUnescape(master)
		if err != nil || name == "" {
			return errors.New("does not say which master the Sentinels watch: redis+sentinel://host,host/MASTER")
		}
		a.Master, db = name, after
	}
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	switch {
	case err != nil:
		return errors.New("has something behind its host that is no number of a database; a / in a password is written %2F")
	case a.Kind == Cluster && n != 0:
		return errors.New("names a database: a Cluster has none but 0")
	}
	a.DB = int(n)
	return nil
}

func (a *Address) parameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("has parameters that cannot be read")
	}
	known := map[string]*string{"ssl_ca_certs": &a.CAFile, "ssl_certfile": &a.CertFile, "ssl_keyfile": &a.KeyFile}
	if a.Kind == Sentinel {
		known["sentinel_username"], known["sentinel_password"] = &a.SentinelUser, &a.SentinelPassword
	}
	for name, list := range values {
		to := known[name]
		if to == nil {
			return errors.New("has a parameter that is unknown: there are ssl_ca_certs, ssl_certfile and ssl_keyfile, and with Sentinels sentinel_username and sentinel_password; a ? in a password is written %3F")
		}
		if len(list) != 1 || list[0] == "" {
			return fmt.Errorf("has %s twice, or empty", name)
		}
		*to = list[0]
	}
	switch {
	case !a.TLS && (a.CAFile != "" || a.CertFile != "" || a.KeyFile != ""):
		return errors.New("names certificates without TLS: begin it with rediss")
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("needs both ssl_certfile and ssl_keyfile, or neither")
	case a.SentinelUser != "" && a.SentinelPassword == "":
		return errors.New("has a sentinel_username and no sentinel_password")
	}
	return nil
}

// Config is how to speak TLS, nil without. It reads the files that the URL names.
func (a *Address) Config() (*tls.Config, error) {
	if !a.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		text, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ssl_ca_certs: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ssl_ca_certs: %s holds no certificate in PEM", a.CAFile)
		}
	}
	if a.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("ssl_certfile, ssl_keyfile: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
