package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nginxConf is nginx with the gateway's controls as far as it has them: keys,
// a rate for each, a cap of calls in flight, the service's credential, and a
// line of JSON for each call, which nothing waits for. One process does all, so
// that its processor time is in one place.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
events { worker_connections 8192; }
http {
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	map_hash_bucket_size 256; map_hash_max_size 8192;
	map $http_authorization $caller { default ""; %[4]s }
	limit_req_zone $caller zone=rate:10m rate=100000r/s;
	limit_req_zone $caller$uri zone=service:10m rate=100000r/s;
	limit_conn_zone $caller zone=inflight:10m;
	log_format receipt escape=json '{"t":"$time_iso8601","key":"$caller","uri":"$uri","status":$status,"out":$bytes_sent,"took":$request_time}';
	access_log %[1]s/access.log receipt;
	upstream stub { server %[3]s; keepalive 512; keepalive_requests 1000000000; }
	server {
		listen %[2]s;
		keepalive_requests 1000000000;
		location / {
			if ($caller = "") { return 401; }
			limit_req zone=rate burst=10000 nodelay;
			limit_req zone=service burst=10000 nodelay;
			limit_conn inflight 64;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Authorization "Bearer the-credential-of-the-service";
			proxy_pass http://stub;
		}
	}
}
`

// nginx starts one, or returns nil where it is not installed.
func (w *world) nginx(upstream string) (*process, error) {
	binary, err := exec.LookPath("nginx")
	if err != nil {
		return nil, nil
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &process{Address: free.Addr().String()}
	_ = free.Close()
	var keys strings.Builder
	for i, key := range w.keys[:manyKeys] {
		fmt.Fprintf(&keys, "\"Bearer %s\" key-%d; ", key, i)
	}
	folder := filepath.Join(w.folder, "nginx")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	conf := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, folder, p.Address, upstream, keys.String()), 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(binary, "-p", folder, "-c", conf, "-e", filepath.Join(folder, "error.log"))
	p.cmd.Stderr = os.Stderr
	if err := p.start(); err != nil {
		return nil, err
	}
	for range 100 {
		if c, err := net.Dial("tcp", p.Address); err == nil {
			return p, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.New("nginx did not start")
}
