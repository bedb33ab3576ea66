#include "common/rpc/shared_memory/memory_door.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// Who has come and says nothing for so long is sent away.
constexpr absl::Duration kHelloTime = absl::Seconds(2);
constexpr size_t kGuestsMax = 64;
// While something is lent it is looked so often whether it was returned: a fold may wait for its memory.
constexpr int kSweepMs = 2;
// Packets that are taken of one link before others have their turn.
constexpr int kPacketsAtOnce = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryDoor>> MemoryDoor::Open(SharedArena* arena,
                                                             LinkListener* listener,
                                                             UserCheck may_share) {
  TESSERA_ASSIGN_OR_RETURN(MemorySocket socket, ListenForMemory());
  OwnedDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) {
    return absl::UnavailableError(absl::StrCat("shared memory: eventfd: ", std::strerror(errno)));
  }
  return std::unique_ptr<MemoryDoor>(
      new MemoryDoor(arena, listener, may_share, std::move(socket), std::move(wake)));
}

MemoryDoor::MemoryDoor(SharedArena* arena, LinkListener* listener, UserCheck may_share,
                       MemorySocket socket, OwnedDescriptor wake)
    : arena_(arena),
      listener_(listener),
      may_share_(may_share),
      socket_(std::move(socket)),
      wake_(std::move(wake)),
      thread_([this] { Run(); }) {}

MemoryDoor::~MemoryDoor() { Close(); }

void MemoryDoor::Close() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
  }
  if (!thread_.joinable()) return;
  Wake();
  thread_.join();
  std::deque<Linked> links;
  {
    absl::MutexLock lock(&mutex_);
    links.swap(links_);
  }
  for (const Linked& linked : links) {
    // A call may hold its link a little longer, and must not wake who is not there.
    linked.link->OnLend(nullptr);
    linked.link->HangUp();
  }
}

void MemoryDoor::Leave(uint64_t link) {
  {
    absl::MutexLock lock(&mutex_);
    left_.push_back(link);
  }
  Wake();
}

void MemoryDoor::Poke() {
  {
    absl::MutexLock lock(&mutex_);
    is_poked_ = true;
  }
  Wake();
}

void MemoryDoor::Wake() {
  const uint64_t one = 1;
  // A counter that is full wakes as well.
  static_cast<void>(!write(wake_.get(), &one, sizeof one));
}

uint64_t MemoryDoor::Expect(uint64_t member) {
  // Who guesses it would have the link of another member. 0 means none.
  std::random_device device;
  const uint64_t link = (uint64_t{device()} << 32 | device()) | 1;
  absl::MutexLock lock(&mutex_);
  expected_.push_back({link, member});
  if (expected_.size() > kExpectedMax) expected_.pop_front();
  return link;
}

std::shared_ptr<MemoryLink> MemoryDoor::Find(uint64_t link, uint64_t member) const {
  absl::MutexLock lock(&mutex_);
  for (const Linked& linked : links_) {
    if (linked.link->number() == link) return linked.member == member ? linked.link : nullptr;
  }
  return nullptr;
}

std::vector<MemoryDoor::Linked> MemoryDoor::links() const {
  absl::MutexLock lock(&mutex_);
  return {links_.begin(), links_.end()};
}

void MemoryDoor::Sweep() {
  for (const Linked& linked : links()) linked.link->Sweep();
}

std::vector<uint64_t> MemoryDoor::members() const {
  std::vector<uint64_t> members;
  for (const Linked& linked : links()) members.push_back(linked.member);
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return members;
}

void MemoryDoor::Run() {
  while (true) {
    std::vector<Linked> links = this->links();
    int lent = 0;
    for (const Linked& linked : links) lent += linked.link->Sweep();
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {socket_.listener.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) polled.push_back({guest.connection.get(), POLLIN, 0});
    for (const Linked& linked : links) polled.push_back({linked.link->connection(), POLLIN, 0});
    // Guests are looked after now and then, links whenever something happens.
    const int wait_ms = lent > 0 ? kSweepMs : guests_.empty() ? -1 : 200;
    if (poll(polled.data(), polled.size(), wait_ms) < 0) continue;
    uint64_t count;
    if (polled[0].revents != 0) static_cast<void>(!read(wake_.get(), &count, sizeof count));
    bool is_poked = false;
    std::vector<uint64_t> left;
    {
      absl::MutexLock lock(&mutex_);
      if (ends_) return;
      is_poked = std::exchange(is_poked_, false);
      left.swap(left_);
    }
    const size_t first = 2 + guests_.size();
    std::vector<Linked> ended;
    for (size_t i = 0; i < links.size(); ++i) {
      const bool is_left =
          std::find(left.begin(), left.end(), links[i].link->number()) != left.end();
      if (is_left || (polled[first + i].revents != 0 && !Listen(links[i]))) {
        ended.push_back(links[i]);
      }
    }
    Drop(ended);
    if (is_poked && listener_ != nullptr) listener_->OnPoke();
    const absl::Time now = SteadyNow();
    // Those that go on waiting are put back.
    std::deque<Guest> guests = std::move(guests_);
    guests_.clear();
    for (size_t i = 0; i < guests.size(); ++i) {
      if (polled[2 + i].revents == 0) {
        if (now - guests[i].come < kHelloTime) guests_.push_back(std::move(guests[i]));
        continue;
      }
      const absl::Status status = Greet(std::move(guests[i].connection));
      if (!status.ok()) {
        Log(LogLevel::kWarning,
            absl::StrCat("server: no shared memory with a guest why=\"", status.message(), "\""));
      }
    }
    if (polled[1].revents != 0) Admit();
  }
}

bool MemoryDoor::Listen(const Linked& linked) {
  // A member that never stops speaking must not keep the others waiting.
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    absl::StatusOr<std::optional<LocalPacket>> packet = reader_.Next(linked.link->connection());
    if (absl::IsUnavailable(packet.status())) return false;
    if (packet.ok() && !packet->has_value()) return true;
    absl::Status status = packet.status();
    if (status.ok()) {
      status = listener_ == nullptr
                   ? absl::UnimplementedError("local call: this server takes none")
                   : listener_->OnPacket(linked.link, linked.member, **std::move(packet));
    }
    if (status.ok()) continue;
    Log(LogLevel::kWarning, absl::StrCat("server: a member's link ends member=", linked.member,
                                         " why=\"", status.message(), "\""));
    return false;
  }
  return true;
}

// Nobody reads what is said on them from now on: their peers hear so.
void MemoryDoor::Drop(const std::vector<Linked>& ended) {
  for (const Linked& linked : ended) {
    {
      absl::MutexLock lock(&mutex_);
      const auto is_it = [&](const Linked& other) { return other.link == linked.link; };
      links_.erase(std::remove_if(links_.begin(), links_.end(), is_it), links_.end());
    }
    linked.link->HangUp();
    if (listener_ != nullptr) listener_->OnGone(linked.link->number());
  }
}

void MemoryDoor::Admit() {
  OwnedDescriptor connection(
      accept4(socket_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.is_open()) return;
  const absl::Status status = CheckPeer(connection.get(), may_share_);
  if (!status.ok()) {
    Log(LogLevel::kWarning,
        absl::StrCat("server: no shared memory with a guest why=\"", status.message(), "\""));
    return;
  }
  // Its hello comes when it comes. One that is silent gives way to others.
  guests_.push_back({std::move(connection), SteadyNow()});
  if (guests_.size() > kGuestsMax) guests_.pop_front();
}

absl::Status MemoryDoor::Greet(OwnedDescriptor connection) {
  MemoryLink::Peer peer;
  TESSERA_ASSIGN_OR_RETURN(const MemoryHello hello, ReceiveHello(connection.get(), &peer.memory));
  uint64_t member = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto found =
        std::find_if(expected_.begin(), expected_.end(),
                     [&hello](const Expected& expected) { return expected.link == hello.link; });
    if (found == expected_.end()) {
      return absl::PermissionDeniedError(
          "shared memory: the link's number was given to nobody, or is used");
    }
    member = found->member;
    // A number that was overheard is of no use once it is used.
    expected_.erase(found);
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<LinkArea> own, LinkArea::Create(arena_));
  const MemoryHello answer = {hello.link, arena_->bytes(), own->offset()};
  peer.connection = std::move(connection);
  peer.memory_bytes = hello.memory_bytes;
  peer.area = hello.area;
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<MemoryLink> link,
                           MemoryLink::Create(hello.link, std::move(own), std::move(peer)));
  link->OnLend([this] { Wake(); });
  const int to = link->connection();
  // The link is there before the peer can name it.
  Add(member, link);
  return SendHello(to, answer, arena_->descriptor());
}

void MemoryDoor::Add(uint64_t member, std::shared_ptr<MemoryLink> link) {
  std::vector<Linked> replaced;
  {
    absl::MutexLock lock(&mutex_);
    const auto is_members = [member](const Linked& linked) { return linked.member == member; };
    if (static_cast<size_t>(std::count_if(links_.begin(), links_.end(), is_members)) >=
        kLinksPerMemberMax) {
      replaced.push_back(*std::find_if(links_.begin(), links_.end(), is_members));
    }
    if (links_.size() - replaced.size() >= kLinksMax) replaced.push_back(links_.front());
    links_.push_back({member, std::move(link)});
  }
  Drop(replaced);
}

}  // namespace tessera
