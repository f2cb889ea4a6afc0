// Runs a schedule in GOAL, as `cluster generate` prints it, on SimGrid's star of nodes, and prints the end in seconds.
//
// Usage: simgrid FILE BITS-PER-NANOSECOND LATENCY-IN-NANOSECONDS --cfg=...
#include <simgrid/s4u.hpp>

#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sg = simgrid::s4u;
using Place = std::pair<int, std::string>;

struct Step {
    sg::ActivityPtr activity;
    std::function<void(sg::ActivityPtr)> precede;
};

template <class Activity> Step step(Activity activity) {
    return {activity, [activity](sg::ActivityPtr later) { activity->add_successor(later); }};
}

int main(int count, char **words) {
    sg::Engine engine(&count, words);
    std::ifstream file(words[1]);
    const double bandwidth = std::stod(words[2]) * 1e9 / 8, latency = std::stod(words[3]) * 1e-9;

    std::string word, line;
    int ranks = 0, rank = 0;
    file >> word >> ranks;
    auto *zone = sg::create_full_zone("star");
    std::vector<sg::Host *> hosts;
    std::vector<sg::Link *> up, down;
    for (int number = 0; number < ranks; ++number) {
        const auto name = std::to_string(number);
        // One floating-point operation in a nanosecond.
        hosts.push_back(zone->create_host(name, 1e9)->seal());
        up.push_back(zone->create_link("up" + name, bandwidth)->set_latency(latency)->seal());
        down.push_back(zone->create_link("down" + name, bandwidth)->set_latency(latency)->seal());
    }
    for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to)
            if (from != to)
                zone->add_route(hosts[from]->get_netpoint(), hosts[to]->get_netpoint(), nullptr, nullptr,
                                {sg::LinkInRoute(up[from]), sg::LinkInRoute(down[to])}, false);
    zone->seal();

    // A receive is an execution of nothing behind its message.
    std::map<Place, Step> operations;
    std::map<std::tuple<int, int, int>, std::vector<Step>> sends, receives;
    std::vector<std::pair<Place, Place>> orders;
    while (std::getline(file, line)) {
        std::istringstream statement(line);
        std::string label, verb, preposition, other;
        statement >> label >> verb;
        if (label == "rank") {
            rank = std::stoi(verb);
        } else if (verb == "send" || verb == "recv") {
            std::string size, tag;
            statement >> size >> preposition >> other >> word >> tag;
            label.pop_back();
            const int peer = std::stoi(other);
            if (verb == "send") {
                auto message = sg::Comm::sendto_init(hosts[rank], hosts[peer]);
                message->set_payload_size(std::stod(size));
                operations[{rank, label}] = step(message);
                sends[{rank, peer, std::stoi(tag)}].push_back(step(message));
            } else {
                auto receive = sg::Exec::init()->set_flops_amount(0)->set_host(hosts[rank]);
                operations[{rank, label}] = step(receive);
                receives[{peer, rank, std::stoi(tag)}].push_back(step(receive));
            }
        } else if (verb == "calc") {
            statement >> other;
            label.pop_back();
            auto work = sg::Exec::init()->set_flops_amount(std::stod(other))->set_host(hosts[rank]);
            operations[{rank, label}] = step(work);
        } else if (verb == "requires") {
            statement >> other;
            orders.push_back({{rank, label}, {rank, other}});
        }
    }
    for (const auto &[pair, all] : sends)
        for (size_t number = 0; number < all.size(); ++number)
            all[number].precede(receives[pair][number].activity);
    for (const auto &[later, earlier] : orders)
        operations[earlier].precede(operations[later].activity);
    for (const auto &[place, operation] : operations)
        operation.activity->vetoable_start();
    engine.run();
    std::cout.precision(12);
    std::cout << engine.get_clock() << std::endl;
}
