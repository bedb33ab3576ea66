#include "server/page/http_request.h"

#include <string>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

// The refusal of a whole text; -1: it wants more.
int RefusalOf(const std::string& text) {
  HttpReader reader;
  return reader.Take(text) ? reader.refusal() : -1;
}

TEST_CASE("a request is read whole, whatever pieces it comes in", "[page][http]") {
  const std::string text =
      "POST /stop?a=1 HTTP/1.1\r\nHost: 127.0.0.1:80\r\nX-A:  b \r\nX-a: c\r\n"
      "Content-Length: 3\r\n\r\nxyz";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    HttpReader reader;
    bool is_whole = false;
    for (size_t i = 0; i < text.size(); i += piece) {
      REQUIRE_FALSE(is_whole);
      is_whole = reader.Take(text.substr(i, piece));
    }
    REQUIRE(is_whole);
    REQUIRE(reader.refusal() == 0);
    CHECK(reader.request().method == "POST");
    CHECK(reader.request().path == "/stop");
    CHECK(reader.request().query == "a=1");
    CHECK(reader.request().Header("host") == "127.0.0.1:80");
    CHECK(reader.request().Header("x-a") == "b, c");
    CHECK(reader.request().Header("none").empty());
    CHECK(reader.request().body == "xyz");
  }
}

TEST_CASE("what is no request is refused with the code that says why", "[page][http]") {
  CHECK(RefusalOf("GET / HTTP/1.1\r\n") == -1);
  CHECK(RefusalOf("GET / HTTP/1.1\r\n\r\n") == 0);
  CHECK(RefusalOf("GET / HTTP/1.0\r\n\r\n") == 0);
  CHECK(RefusalOf("GET / HTTP/2.0\r\n\r\n") == 505);
  CHECK(RefusalOf("GET /\r\n\r\n") == 400);
  CHECK(RefusalOf("\r\n\r\n") == 400);
  CHECK(RefusalOf("GET http://other/ HTTP/1.1\r\n\r\n") == 400);
  CHECK(RefusalOf("GET /a b HTTP/1.1\r\n\r\n") == 400);
  CHECK(RefusalOf("GET /\x01 HTTP/1.1\r\n\r\n") == 400);
  CHECK(RefusalOf("G(T / HTTP/1.1\r\n\r\n") == 400);
  CHECK(RefusalOf("GET / HTTP/1.1\r\nno colon\r\n\r\n") == 400);
  CHECK(RefusalOf("GET / HTTP/1.1\r\nName : space\r\n\r\n") == 400);
  CHECK(RefusalOf("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n") == 400);
  CHECK(RefusalOf("GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n") == 400);
  CHECK(RefusalOf("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n") == 400);
  CHECK(RefusalOf("POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n") == 413);
  CHECK(RefusalOf("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n") == 400);
  CHECK(RefusalOf("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n") == 400);
  CHECK(RefusalOf("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") == 501);
  CHECK(RefusalOf(std::string("\x16\x03\x01\x00\x00 TLS\r\n\r\n", 13)) == 400);
}

TEST_CASE("headers are bounded in bytes and in number", "[page][http]") {
  CHECK(RefusalOf("GET / HTTP/1.1\r\nA: " + std::string(1 << 20, 'x')) == 431);
  std::string many = "GET / HTTP/1.1\r\n";
  for (size_t i = 0; i <= kHttpHeadersMax; ++i) many += "A: b\r\n";
  CHECK(RefusalOf(many + "\r\n") == 431);
  // The line without an end is a head, too.
  CHECK(RefusalOf("GET /" + std::string(kHttpHeadBytesMax, 'x')) == 431);
}

}  // namespace
}  // namespace tessera
