"""Goes to an HTTPS server through the gateway as a proxy, by Python's own client:
python3 tunnel.py https://HOST:PORT/ (https_proxy and SSL_CERT_FILE in the environment).
Prints the answer to a POST of a mebibyte."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], data=b"x" * (1 << 20), timeout=60) as answer:
    print(answer.read().decode())
